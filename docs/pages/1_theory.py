# %% [markdown]
"""
What is DDP
===========
"""

# %% [markdown]
# **You will be able to** say what ``DistributedDataParallel`` (DDP) does during a training step, and
# why the result is the same as on one device.
#
# **You need** the :doc:`0_intro`.
#
# The idea
# --------
#
# One device is too slow, so use several. Give each a copy of the model and a share of the samples
# of every step. Each computes a loss and gradients on its own share. If each device updated its
# copy with its own gradients, the copies would drift apart. So the devices **average their
# gradients** before the update. The copies start with equal weights and apply equal gradients, so
# they stay equal.
#
# This is *data parallelism*, and DDP is PyTorch's implementation of it. Six terms describe it:
#
# - A :term:`process` is a running program with its own memory. DDP uses one process per device, and
#   all processes run the same script. Threads of one process would be slower, because only one of
#   them can run Python at a time: they wait for each other at the *global interpreter lock*, the
#   GIL.
# - The :term:`rank` is the number of a process, counted from 0.
# - The :term:`world size` is the number of processes.
# - A :term:`process group` is a set of processes that communicate. At first there is one, with all
#   processes in it.
# - A :term:`collective` is an operation that every process of the group must call. If one does not,
#   the others wait for it. The most important collective is **all-reduce**: every process passes a
#   tensor, and every process receives the sum of all of them.
# - The :term:`backend` is the library that moves the data: NCCL between GPUs, :term:`gloo` between
#   CPUs. All commands on this page use CPUs.
#
# .. diagram:: ddp-step
#
#    A training step on two processes. DDP collects gradients in :term:`buckets <bucket>`, and
#    averages the first ones while ``backward()`` still computes the others.

# %% [markdown]
# Averaging by hand
# -----------------
#
# ``OurDDP`` replaces ``DistributedDataParallel``. Its constructor broadcasts the weights of rank 0:
# every process receives them and drops the weights it had. After each ``backward()``, it averages the
# gradients:
#
# .. literalinclude:: ../theory/average_by_hand.py
#    :pyobject: OurDDP
#
# The script trains three copies of a model for four steps and compares their weights before each
# step. One copy uses ``OurDDP`` and one the real DDP, both on two processes with half of the batch
# each. The third uses no DDP, and every process trains it on the whole batch.
#
# .. run::
#    :expect: ^Step 3: weights differ by 0 between ranks, by 0 from DDP
#
#    {average_by_hand}
#
# - **Between ranks: 0.** The processes started with different weights, as the first line shows.
#   After the broadcast the weights are equal, and they stay equal. No process ever compares or
#   corrects weights. Equal gradients are enough.
# - **From DDP: 0.** ``OurDDP`` computes what DDP computes, to the last bit. (With more processes
#   the sums could be rounded in another order.)
# - **From one process: 1e-08.** This is rounding. The sum of 32 numbers depends on the order in
#   which they are added.
#
# Why the average is right
# ------------------------
#
# The loss is a mean over the samples of a batch. Here each of two ranks computes the mean over its
# 16 samples. The mean of these two means is the mean over all 32 samples, and the same holds for
# gradients. So the averaged gradient is the gradient of the whole batch.
#
# This is true only if all shares have the same size. The last two lines of the output show why.
# With shares of 4 and 28 samples, the mean of the two means is 0.3064, but the mean over all
# samples is 0.2987. ``DistributedSampler``, on the next page, gives every rank the same number of
# samples.
#
# The sum would be wrong. It grows with the number of processes, as if the learning rate did.

# %% [markdown]
# Sending each gradient as soon as it is computed
# -----------------------------------------------
#
# ``OurDDP`` starts to send after ``backward()`` has ended. But ``backward()`` computes the
# gradients of the last layer first. While it works on the earlier layers, these gradients are
# ready, and nothing sends them.
#
# .. lesson-diff:: average_with_hooks
#    :edit: start-when-ready
#    :confirmed: 4f6e11d33af0
#
#    A *hook* is a function that PyTorch calls at a certain point. Here autograd calls it as soon as
#    a parameter has its gradient. With ``async_op=True``, ``all_reduce`` only starts the operation
#    and returns at once. ``work.wait()`` waits for it later, before the optimizer uses the
#    gradient.
#
#    All ranks must start their all-reduces in the same order, because the backend matches the first
#    one of each rank, then the second, and so on. All ranks run the same model, so the order is the
#    same. If a step skips a layer, its gradient never comes, and DDP raises an error at the next
#    step. With ``find_unused_parameters=True`` DDP finds such parameters and does not expect their
#    gradients.
#
# .. run::
#    :expect: (?s)Gradients arrive: 5\..*Each step: 12 all-reduces, 25,344 bytes
#    :mark: Gradients arrive|all-reduces
#    :show: 2 0
#
#    {average_with_hooks}
#
# The layers are numbered 0 to 5, and the gradients arrive from 5 to 0. ``backward()`` never changes
# a gradient after it has arrived, so sending can overlap with the rest of ``backward()``. Six
# layers have six weights and six biases, so there are twelve gradients, and each gets its own
# all-reduce.

# %% [markdown]
# One all-reduce for many gradients
# ---------------------------------
#
# Every message takes some time to arrive, however small it is: its *latency*. Twelve small
# all-reduces pay it twelve times.
#
# .. lesson-diff:: average_in_buckets
#    :edit: fill-buckets
#    :confirmed: 57122d3fcb59
#
#    A :term:`bucket` is one piece of memory for several gradients. In this code ``bucket`` lists
#    the parameters, and ``torch.cat`` makes the memory. The parameters are assigned to buckets in
#    the order in which ``backward()`` reaches them. The optimizer's ``zero_grad`` sets gradients to
#    ``None``, so one that is not ``None`` has arrived. When the last gradient of a bucket has
#    arrived, all of them are copied into it, and one all-reduce sends it. Afterwards each gradient
#    is a view of its part of the bucket, so nothing is copied back.
#
#    DDP does the same if it gets ``gradient_as_bucket_view=True``. By default it copies the
#    averages back. Its first bucket holds 1 MiB, so that sending starts early, and the others 25
#    MiB. ``bucket_cap_mb`` sets the size of all of them.
#
# .. run::
#    :expect: Each step: 3 all-reduces, 25,344 bytes
#    :mark: all-reduces
#    :show: 2 0
#
#    {average_in_buckets}
#
# The number of bytes is the same. Three all-reduces send them, not twelve.

# %% [markdown]
# What DDP does not do
# --------------------
#
# - **Average the loss.** DDP averages gradients only. The loss that a rank prints is that of its
#   own share.
#   :doc:`2_multigpu` sums the loss over all ranks.
# - **Average buffers.** A batch normalisation keeps its running mean in a buffer. In training,
#   every ``forward()`` of DDP broadcasts those of rank 0 instead. Under ``no_grad`` only the first
#   ``forward()`` does, and all ranks must make that one.
# - **Join the statistics of a batch.** A batch normalisation uses the mean of one rank's share. On
#   GPUs, ``torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)`` replaces it by one that uses all
#   shares.
# - **Distribute the data.** The sampler gives each rank its own samples.
# - **Save memory.** Every process holds the whole model, its gradients and the optimizer's state.
# - **Start processes.** ``mp.spawn`` does, in :doc:`2_multigpu`, and ``torchrun`` in
#   :doc:`3_fault_tolerance`.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 1_theory
#    :next: :doc:`1a_speed`, which counts what DDP sends. It can wait: :doc:`2_multigpu` uses DDP in a script
#    :also: torch.distributed.broadcast, torch.nn.parallel.DistributedDataParallel, torch.Tensor.register_post_accumulate_grad_hook
#
#    You can now say what DDP does: it broadcasts the weights once, and averages the gradients in
#    buckets during ``backward()``.
#
#    .. fold:: The ranks never exchange weights after the start. Why do the weights stay equal?
#
#       They start equal, because the constructor broadcasts those of rank 0. In each step every
#       rank has the same averaged gradients and the same state of its optimizer. The same
#       computation on the same numbers gives the same weights.
#
#    .. fold:: Rank 0 has 4 samples of a batch and rank 1 has 28. Whose samples count more?
#
#       Those of rank 0. The means of both ranks have the same weight in the average, so one of its
#       samples counts seven times as much as one of rank 1's. The last lines of the first script's
#       output show it: 0.3064 instead of 0.2987.
#
#    .. fold:: A model is a single large layer. How much do hooks and buckets gain?
#
#       Almost nothing. The only gradients, of its weight and its bias, arrive when ``backward()``
#       ends, so nothing is left to overlap with. Overlap needs many layers: the gradients of the
#       later ones travel while those of the earlier ones are computed.
