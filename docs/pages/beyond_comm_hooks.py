# %% [markdown]
"""
Gradient compression, with a communication hook
===============================================
"""

# %% [markdown]
# **You will be able to** replace the all-reduce of DDP by your own, count the bytes that it sends,
# and say what you pay for sending fewer.
#
# **You need** the script of :doc:`4_multinode`, and :doc:`1_theory`.
#
# DDP sends every gradient in the type of its parameter, which is float32 even under autocast: four
# bytes per number. Between nodes with a slow network, sending can take most of a step
# (:doc:`1a_speed`). But DDP can call a *communication hook*: a function of yours that averages a
# :term:`bucket` in any way.

# %% [markdown]
# Averaging in a hook
# -------------------
#
# The first hook does what DDP does, to show that nothing is lost:
#
# .. lesson-diff:: comm_hooks
#    :edit: average-in-a-hook
#    :confirmed: 5dcb3fdd23b3
#
#    ``register_comm_hook`` takes the hook and a state for its calls, which this hook does not need.
#    During ``backward()``, DDP calls the hook once per full bucket. ``bucket.buffer()`` is one flat
#    tensor with all gradients of the bucket.
#
#    The hook must divide, because DDP does not divide the result of a hook. It must not wait for
#    the all-reduce, or ``backward()`` would wait too. So it starts one with ``async_op=True`` and
#    returns a *future*: an object that will have a value later. The function in ``then`` runs when
#    the sum has arrived, writes the average into the bucket and returns it. DDP waits for all
#    futures at the end of ``backward()``.
#
# .. run::
#    :expect: 1 all-reduce of 84 bytes by average_hook
#    :mark: bytes
#
#    python -m tools.series run --probe comm_hooks@1 3 3
#
# The model has 21 parameters, so a step sends 84 bytes. The result equals DDP's, bit for bit:
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 6
#
#    python -m tools.series show comm_hooks@1 > hook.py
#    python docs/labs/forks.py 2 hook.py multinode.py 10 10 | grep saved
#    python docs/labs/same.py hook_2.pt multinode_2.pt

# %% [markdown]
# Sending bfloat16
# ----------------
#
# .. lesson-diff:: comm_hooks
#    :edit: send-bfloat16
#    :confirmed: 278148821fb1
#
#    A bfloat16 has two bytes. Its exponent has as many bits as that of a float32, so its range is
#    the same. Its *precision* is 8 bits: each number, and each sum, is rounded by up to 0.4 %. At
#    the end ``copy_`` converts the average back to float32, the type of momentum and weights.
#
# .. run::
#    :expect: 1 all-reduce of 42 bytes by average_hook
#    :mark: bytes
#
#    python -m tools.series run --probe comm_hooks 3 3
#
# A step sends half of the bytes. Both ranks receive the same rounded sum, so they still end with
# equal weights, which differ a little from DDP's:
#
# .. run::
#    :expect: weights [1-9]\.\de-0[45]
#    :mark: from
#
#    python docs/labs/forks.py 2 beyond/comm_hooks.py multinode.py 10 10 | grep saved
#    python docs/labs/distance.py multinode_2.pt comm_hooks_2.pt

# %% [markdown]
# The hooks of PyTorch
# --------------------
#
# PyTorch has ready hooks. ``fp16_compress_hook`` is this lesson's hook with float16: 11 bits of
# precision, but a small range. Numbers above 65,504 become infinite, and numbers below 3e-8 become
# zero. It also divides before it converts, so that the sum is no larger than the gradients.
# ``bf16_compress_hook`` is this lesson's hook, for GPUs only.
#
# ``powerSGD_hook`` sends far less. It treats the gradient of a linear layer as an *n* × *m* matrix,
# approximates it by the product of an *n* × *r* and an *r* × *m* matrix, and sends only these two.
# *r* is the *rank* of the matrix, not that of a process. This lesson's only matrix has one row, so
# its rank is 1 already. So a lab trains three linear layers 20 → 64 → 64 → 1 on the same data, with
# one hook after the other, and counts what passes through ``dist.all_reduce``:
#
# .. run::
#    :expect: (?s)float32 +\| 22,276 \| +0.0e\+00.*bfloat16 \| 11,138.*fp16_compress_hook \| 11,138.*rank 1 +\| +1,620.*feedback \| +1,620.*BF16 all reduce
#    :mark: PowerSGD|feedback
#
#    torchrun --standalone --nproc_per_node=2 -m docs.labs.comm_hooks
#
# - **DDP without a hook** calls its all-reduce in C++, where the lab cannot count it. The hook in
#   float32 sends the same bucket, 5,569 numbers of 4 bytes, and its weights equal DDP's.
# - **bfloat16 and float16** send half. float16 is closer to DDP here, because it has three more
#   bits. The loss is the same to four decimals.
# - **PowerSGD** sends 1,620 bytes, almost 14 times fewer. The two large matrices become 64 + 20 and
#   64 + 64 numbers. Biases and the last layer, 193 numbers, are sent whole, because two factors
#   would save too little. That makes 405 numbers.
# - **bf16_compress_hook** refuses to run on a CPU. Your own hook works on both.

# %% [markdown]
# Error feedback
# --------------
#
# With *r* = 1, the two factors can express one direction of a gradient. PowerSGD does not discard
# the rest: each rank keeps the difference, and adds it to its gradient of the next step. With this
# *error feedback*, a direction that is too weak to be sent grows from step to step until it is
# sent.
#
# The highlighted rows of the table, which send the same bytes, show the effect. Without feedback
# (``use_error_feedback=False``) weak directions never reach the weights, which end several times as
# far from DDP's, and the loss is 0.054 instead of 0.042.
#
# The kept difference is *state*, and so are the factors, from which the next step starts:
#
# - **Memory.** The differences are as large as the gradients.
# - **Resuming.** A checkpoint without this state loses what was not sent yet, so a resumed run
#   trains other weights than an uninterrupted one. ``PowerSGDState`` can be pickled, but each rank
#   has its own, and the checkpoint of this series has only one rank's. A hook without state, such
#   as this lesson's, resumes exactly on two ranks. (For more, see "Fewer messages" in
#   :doc:`5c_fast`.)
# - **A start without compression.** DDP rebuilds its buckets in the first steps, so
#   ``start_powerSGD_iter`` must be 2 or more. The lab uses 10; PyTorch's default is 1,000.
#
# When does it pay?
# -----------------
#
# Fewer bytes are faster only if a step waits for bytes. A hook also takes time itself: a conversion
# or, with PowerSGD, three matrix products per matrix, and three all-reduces per bucket instead of
# one. A small model waits for latency instead, and three all-reduces have three latencies.
#
# The authors of PowerSGD report shorter training times for convolutional networks and LSTMs
# (`Vogels et al. 2019 <https://arxiv.org/abs/1905.13727>`__). A later study compared compression
# with an optimized all-reduce in more than 200 set-ups of data centers. Compression was faster in 6
# of them (`Agarwal et al. 2022 <https://arxiv.org/abs/2103.00543>`__). So measure on your own
# network, and try bfloat16 first, because it costs one line.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_comm_hooks
#    :next: :doc:`5_minGPT`
#    :also: torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook, torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.powerSGD_hook
#
#    You can now decide what DDP sends, count it, and say what compression costs.
#
#    .. fold:: Your hook leaves out ``/ dist.get_world_size()``. What changes?
#
#       The optimizer gets the sum of the gradients. With SGD, this multiplies the learning rate by
#       the number of ranks. No error appears, and the ranks agree with each other.
#
#    .. fold:: Each rank rounds its own gradients. Why do the weights of the ranks not drift apart?
#
#       Every rank uses the sum that the all-reduce returns, which is the same on all ranks. What
#       one rank rounds away is lost for all of them.
#
#    .. fold:: A gradient is an *n* × *n* matrix. How much does PowerSGD with *r* = 4 send?
#
#       Two matrices of *n* × 4, so 8 *n* numbers instead of *n* ². For *n* = 1,024 that is 128
#       times fewer.
