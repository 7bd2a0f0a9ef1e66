# %% [markdown]
"""
What is DDP
===========
"""

# %% [markdown]
# **You will be able to** say what ``DistributedDataParallel`` (DDP) does during a training step,
# and why the result is the same as on one device.
#
# **You need** the :doc:`0_intro`.
#
# The idea
# --------
#
# If one device is too slow, use several. Every device gets a copy of the model and a share of the
# samples of each step, and computes a loss and gradients on its share. If each device updated its
# copy with its own gradients, the copies would drift apart. So the devices **average their
# gradients** before the update. The copies start with equal weights and apply equal gradients, so
# they stay equal.
#
# This is *data parallelism*, and DDP is PyTorch's implementation of it. (The older ``DataParallel``
# uses threads and sends the weights in every step: :doc:`beyond_data_parallel`.) These are the terms:
#
# - A :term:`process` is a running program with its own memory. DDP uses one process per device, and
#   all processes run the same script.
# - The :term:`rank` is the number of a process, counted from 0.
# - The :term:`world size` is the number of processes.
# - A :term:`process group` is a set of processes that communicate.
# - A :term:`collective` is an operation that every process of the group must call. If one process
#   does not, the others wait for it. The most important collective is **all-reduce**: every process
#   passes a tensor, and every process receives the sum of these tensors.
# - The :term:`backend` is the library that moves the data: NCCL between GPUs, :term:`gloo` between
#   CPUs.
#
# .. diagram:: ddp-step
#
#    A training step on two processes. DDP collects gradients in :term:`buckets <bucket>`, and
#    averages the first buckets while ``backward()`` still computes the gradients for the others.

# %% [markdown]
# Averaging by hand
# -----------------
#
# ``OurDDP`` replaces ``DistributedDataParallel``. Its constructor broadcasts the weights of rank 0,
# so every process gets them. After each ``backward()``, it averages the gradients:
#
# .. literalinclude:: ../theory/average_by_hand.py
#    :pyobject: OurDDP
#
# The script trains three copies of a model and compares their weights before each step. Two copies,
# one with ``OurDDP`` and one with the real DDP, train on half of the batch per process. The third
# uses no DDP, and every process trains it on the whole batch.
#
# .. run::
#    :expect: ^Step 3: weights differ by 0 between ranks, by 0 from DDP
#
#    {average_by_hand}
#
# - **Between ranks: 0.** The processes drew different weights, as the first line shows, and the
#   broadcast made them equal.
# - **From DDP: 0.** With two processes, ``OurDDP`` computes what DDP computes, to the last bit.
# - **From one process: 1e-08.** This is rounding: the sum of 32 numbers depends on the order in
#   which they are added.
#
# Why the average is right
# ------------------------
#
# The loss is a mean over the samples of a batch. Each of the two ranks computes the mean over its
# 16 samples, and the mean of these two means is the mean over all 32 samples. The same holds for
# gradients, so the averaged gradient is the gradient of the whole batch.
#
# This is true only if all shares have the same size, as the last two lines of the output show.
# ``DistributedSampler``, in :doc:`2_multigpu`, gives every rank the same number of samples.

# %% [markdown]
# Sending each gradient as soon as it is computed
# -----------------------------------------------
#
# ``OurDDP`` starts to send after ``backward()`` has ended. But the gradients of the last layer are
# ready first, and could be sent while ``backward()`` works on the earlier layers.
#
# .. lesson-diff:: average_with_hooks
#    :edit: start-when-ready
#    :confirmed: 4f6e11d33af0
#
#    A *hook* is a function that PyTorch calls at a certain point, here as soon as a parameter has
#    its gradient. With ``async_op=True``, ``all_reduce`` starts the operation and returns at once.
#    ``work.wait()`` waits for its end before the optimizer uses the gradient.
#
#    All ranks must start their all-reduces in the same order, because the backend matches the first
#    all-reduce of rank 0 with the first of every other rank, then the second, and so on. The order
#    is the same because all ranks run the same model.
#
# .. run::
#    :expect: (?s)Gradients arrive: 5\..*Each step: 12 all-reduces, 25,344 bytes
#    :mark: Gradients arrive|all-reduces
#    :show: 2 0
#
#    {average_with_hooks}
#
# The gradients of layer 5, the last one, arrive first. ``backward()`` never changes a gradient
# after it has arrived, so sending can overlap with the rest of ``backward()``.

# %% [markdown]
# One all-reduce for many gradients
# ---------------------------------
#
# Every message, however small, takes some time to arrive: its *latency*. Twelve small all-reduces,
# one per weight and bias of six layers, pay this latency twelve times.
#
# .. lesson-diff:: average_in_buckets
#    :edit: fill-buckets
#    :confirmed: 57122d3fcb59
#
#    A :term:`bucket` is one piece of memory for several gradients. The parameters are assigned to
#    buckets in the order in which ``backward()`` reaches them. The optimizer's ``zero_grad`` sets
#    gradients to ``None``, so a gradient that is not ``None`` has arrived. When all gradients of a
#    bucket have arrived, ``torch.cat`` copies them into it, and one all-reduce sends it. Each
#    gradient becomes a view of its part of the bucket, so nothing is copied back.
#
#    From the second step on, DDP's first bucket holds 1 MiB, so that sending starts early, and the
#    others hold 25 MiB.
#
# .. run::
#    :expect: Each step: 3 all-reduces, 25,344 bytes
#    :mark: all-reduces
#    :show: 2 0
#
#    {average_in_buckets}
#
# Three all-reduces send as many bytes as twelve did.

# %% [markdown]
# What DDP does not do
# --------------------
#
# - **Average the loss.** Each rank prints the loss of its share, unless the script sums the losses
#   of all ranks, as in :doc:`2_multigpu`.
# - **Average buffers**, such as the running mean of batch normalisation. Instead, each
#   ``forward()`` that follows a training step broadcasts rank 0's buffers, so all ranks must call
#   it. :doc:`your_script` says more of batch normalisation.
# - **Distribute the data.** The sampler gives each rank its own samples.
# - **Save memory.** Every process holds the whole model, its gradients and the optimizer's state.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 1_theory
#    :next: :doc:`1a_speed`, which counts what DDP sends. It can wait: :doc:`2_multigpu` uses DDP in a script
#    :also: torch.distributed.broadcast, torch.nn.parallel.DistributedDataParallel, torch.Tensor.register_post_accumulate_grad_hook
#
#    You can now say what DDP does in a training step.
#
#    .. fold:: The ranks never exchange weights after the start. Why do the weights stay equal?
#
#       The constructor's broadcast makes them equal. In each step every rank has the same averaged
#       gradients and the same optimizer state, so it computes the same new weights.
#
#    .. fold:: Rank 0 has 4 samples of a batch and rank 1 has 28. Whose samples count more?
#
#       Those of rank 0. Both means count equally in the average, so a sample of rank 0 counts seven
#       times as much as a sample of rank 1.
