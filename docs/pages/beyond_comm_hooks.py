# %% [markdown]
"""
Gradient compression, with a communication hook
===============================================
"""

# %% [markdown]
# **You will be able to** replace the all-reduce of DDP by your own, and to say what you pay for
# sending fewer bytes.
#
# **You need** the script of :doc:`4_multinode`, and :doc:`1_theory`.
#
# DDP sends every gradient in the type of its parameter, which is float32 even under autocast: four
# bytes per number. On a slow network, sending can take most of a step (:doc:`1a_speed`). But DDP
# can call a *communication hook*: a function of yours that averages a :term:`bucket` in any way.

# %% [markdown]
# Averaging in a hook
# -------------------
#
# The first hook does what DDP does:
#
# .. lesson-diff:: comm_hooks
#    :edit: average-in-a-hook
#    :confirmed: 5dcb3fdd23b3
#
#    ``register_comm_hook`` takes a state, which this hook does not need, and the hook. During
#    ``backward()``, DDP calls the hook once per full bucket. ``bucket.buffer()`` is one flat tensor
#    with all gradients of the bucket.
#
#    With a hook, DDP no longer divides, so the hook must. It must not wait for the all-reduce, or
#    ``backward()`` would wait too. So it starts one with ``async_op=True`` and returns a *future*:
#    an object that will have a value later. The function in ``then`` gets the sum, writes the
#    average into the bucket and returns it. DDP waits for all futures at the end of ``backward()``.
#
# .. run::
#    :expect: 1 all-reduce of 84 bytes by average_hook
#    :mark: bytes
#
#    python -m tools.series run --probe comm_hooks@1 3 3
#
# The model has 21 weights, so a step sends 84 bytes. The result equals DDP's, bit for bit. Here
# ``forks.py`` trains both scripts on two ranks:
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 1
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
#    the end ``copy_`` converts the average back to float32.
#
# .. run::
#    :expect: 1 all-reduce of 42 bytes by average_hook
#    :mark: bytes
#
#    python -m tools.series run --probe comm_hooks 3 3
#
# The weights differ a little from DDP's:
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
# PyTorch's ``bf16_compress_hook`` does nearly the same. ``fp16_compress_hook`` is the same with
# float16: 11 bits of precision, but a small range. Numbers from 65,520 become infinite, and
# numbers below 3e-8 become zero.
#
# ``powerSGD_hook`` (`Vogels et al. 2019 <https://arxiv.org/abs/1905.13727>`__) sends far less. It
# treats the gradient of a linear layer as an *n* × *m* matrix, approximates it by the product of an
# *n* × *r* and an *r* × *m* matrix, and sends only these two. *r* is the *rank* of the matrix, not
# that of a process. A lab trains three linear layers 20 → 64 → 64 → 1 on the
# same data, once with each hook, and counts what passes through ``dist.all_reduce``:
#
# .. run::
#    :expect: (?s)float32 +\| 22,276 \| +0.0e\+00.*bfloat16 \| 11,138.*fp16_compress_hook \| 11,138.*rank 1 +\| +1,620.*feedback \| +1,620.*BF16 all reduce
#    :mark: PowerSGD|feedback
#
#    torchrun --standalone --nproc_per_node=2 -m docs.labs.comm_hooks
#
# PowerSGD sends 1,620 bytes, almost 14 times fewer than float32. The two large matrices become 64 +
# 20 and 64 + 64 numbers. Biases and the last layer, 193 numbers, are sent whole, because two
# factors would be larger. float16 ends closer to DDP than bfloat16, because it rounds less, and
# these gradients fit its range. ``bf16_compress_hook`` needs NCCL or XCCL, so here it only prints
# its error.

# %% [markdown]
# Error feedback
# --------------
#
# With *r* = 1, the two factors can express only one part of a gradient. PowerSGD does not
# discard the rest: each rank keeps it, and adds it to its gradient of the next step. With this
# *error feedback*, a weak part grows from step to step until it is sent.
#
# Without feedback (``use_error_feedback=False``), the loss is 0.054 instead of 0.042, because weak
# parts seldom reach the weights. The weights end several times as far from DDP's.
#
# The unsent part, and the second factor, with which the next step begins (a *warm start*), are
# *state*:
#
# - **Memory.** The unsent part takes as much as the gradients.
# - **Resuming.** A checkpoint without this state loses what was not sent yet, so a resumed run
#   trains other weights than an uninterrupted one. ``PowerSGDState`` can be pickled, but each rank
#   has its own, and here one rank per node saves.
#
# When does it pay?
# -----------------
#
# Fewer bytes are faster only if a step waits for bytes. A hook also takes time itself: a conversion
# or, with PowerSGD, three matrix products per matrix, and three all-reduces per bucket, each with
# its own latency.
#
# A study of more than 200 set-ups in data centres found compression faster than an optimized
# all-reduce in only 6 of them (`Agarwal et al. 2022 <https://arxiv.org/abs/2103.00543>`__). So
# measure on your own network, and try bfloat16 first, because it costs one line.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_comm_hooks
#    :next: :doc:`5_minGPT`
#    :also: torch.distributed.algorithms.ddp_comm_hooks.default_hooks.fp16_compress_hook, torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook.powerSGD_hook
#
#    You can now decide what DDP sends, and say what compression costs.
#
#    .. fold:: Each rank rounds its own gradients. Why do the weights of the ranks not drift apart?
#
#       Every rank uses the sum that the all-reduce returns, which is the same on all ranks.
#
#    .. fold:: A gradient is an *n* × *n* matrix. How much does PowerSGD with *r* = 4 send?
#
#       Two matrices of *n* × 4, so 8 *n* numbers instead of *n* ². For *n* = 1,024 that is 128
#       times fewer.
