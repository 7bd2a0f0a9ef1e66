# %% [markdown]
"""
On GPUs
=======
"""

# %% [markdown]
# **You will be able to** say what makes training on a GPU fast and what fills its memory, repeat a
# run bit for bit, and read what NCCL prints.
#
# **You need** the stage ``mingpt@10`` of :doc:`5c_fast`.
#
# Every figure on this page names the device on which it was measured. Where none is shown, it has
# not been measured yet, and the note below the command says so. What is counted needs no GPU.

# %% [markdown]
# The same scripts
# ----------------
#
# No lesson has a line for GPUs alone. ``utils.py`` finds them, the default backend for them is
# NCCL, and ``--nproc_per_node=gpu`` starts one process per GPU. With one GPU there is one process,
# so its weights must be equal to those of ``single_gpu.py``:
#
# .. run::
#    :expect: (?m)^equal
#    :elsewhere: it needs a GPU
#
#    python single_gpu.py 50 10 | tail -n 2
#    torchrun --standalone --nproc_per_node=gpu multinode.py 50 10 | tail -n 2
#    python docs/labs/same.py single_gpu.pt multinode.pt
#
# A script that finds no GPU says so in its first line, and why. To train on the CPU of a machine
# that has GPUs, hide them with ``CUDA_VISIBLE_DEVICES=``.

# %% [markdown]
# What makes it fast
# ------------------
#
# The model is GPT-2 with 124 million weights, on random tokens, with 16 sequences of 1,024 tokens
# per GPU. Each row adds one change to the row above. The rows below the ladder are compared with
# the row that they name:
#
# .. run::
#    :expect: compiled whole
#    :elsewhere: it needs a GPU and a clone of nanoGPT
#    :timeout: 560
#
#    torchrun --standalone --nproc_per_node=gpu -m docs.labs.gpu_ladder --nanogpt nanoGPT

# %%
import re

import lab

log = lab.run(
    "torchrun --standalone --nproc_per_node=gpu -m docs.labs.gpu_ladder --nanogpt nanoGPT",
)
rows = re.findall(r"^(.+?) +\| +([\d,]+) tokens/s", log, re.MULTILINE)
rows = [(name, int(speed.replace(",", ""))) for name, speed in rows]
if rows:
    figure, axes = lab.picture(
        "Tokens per second of each row: " + ", ".join(f"{name} {speed:,}" for name, speed in rows) + ".",
        height=3.2,
    )
    colors = [lab.COLORS["nanoGPT" in name] for name, _ in rows]
    axes.barh([name for name, _ in rows], [speed for _, speed in rows], color=colors)
    axes.set(xlabel="tokens per second")
    axes.invert_yaxis()

# %% [markdown]
# - **tf32** and **bf16**: the Tensor Cores multiply numbers of fewer digits, and memory moves half
#   the bytes. ``precision`` is ``bf16`` by itself on a GPU that has it.
# - **vocabulary padded**: Tensor Cores are fast only if rows lie at multiples of 16 bytes. GPT-2
#   has 50,257 tokens, an odd number, and the matrix that maps to them has as many rows. So the
#   model adds rows of zeros within the product and cuts off their results. Weights, checkpoints and
#   the loss stay as they are. Compiled code pads by itself, but not with ``--deterministic``.
# - **compiled**: Inductor fuses the small operations between the products. DDP lets it cut the
#   graph where buckets end, so that sending overlaps with ``backward()``. One process sends
#   nothing, so it should not cut: see "Fewer messages, copies and kernels" in :doc:`5c_fast`. On
#   one H200 (PyTorch 2.11, beside other load) this alone took the trainer from 356,000 tokens per
#   second to 450,000.
# - **micro-batch of 64**: larger products use the GPU better, until its memory is full.
#
# MFU (model FLOPs utilization) is the share of the GPU's theoretical peak that the model's
# arithmetic reaches. `nanoGPT <https://github.com/karpathy/nanoGPT>`__ is the best known code for
# this model. Here it trains the same model, biases included, on the same tokens in the same call.

# %% [markdown]
# What the memory holds
# ---------------------
#
# A training step holds the weights, their gradients, AdamW's two averages, and what the forward
# pass keeps for the backward pass. All of it can be counted without a GPU, on *fake tensors*, which
# have shapes but no numbers:
#
# .. run::
#    :expect: ^16 +\| +0.46 \| +0.46 \| +0.93 \| +8.4
#    :mark: ^16
#
#    python -m docs.labs.gpu_memory 1 4 16 64

# %%
log = lab.run("python -m docs.labs.gpu_memory 1 4 16 64")
counted = [list(map(float, re.findall(r"[\d.]+", line))) for line in log.splitlines()[1:]]
PARTS = "weights", "gradients", "AdamW", "kept for backward"

figure, axes = lab.picture(
    "Memory of a step of GPT-2 in bf16, in GiB, by micro-batch: "
    + "; ".join(f"{row[0]:.0f} sequences, {sum(row[1:5]):.1f}" for row in counted)
    + ". Weights, gradients and AdamW's averages are 1.9 of each, the rest grows with the batch.",
    height=2.2,
)
for place, row in enumerate(counted):
    left = 0
    for part, color in zip(row[1:5], lab.COLORS, strict=True):
        axes.barh(place, part, 0.75, left, color=color)
        left += part
axes.set(
    yticks=range(len(counted)), yticklabels=[f"{row[0]:.0f}" for row in counted],
    ylabel="micro-batch", xlabel="GiB",
)
axes.invert_yaxis()
patches = [axes.barh(0, 0, color=color) for color in lab.COLORS]
figure.legend(patches, PARTS, loc="outside upper right", ncols=4)

# %% [markdown]
# The first three do not depend on the batch: 16 bytes per weight. What is kept grows with the
# tokens, half a gigabyte per sequence, and soon is nearly all. So the micro-batch is the first thing to lower
# when memory runs out, and ``--micro_batch_size`` does so without a change to the training: the
# process accumulates.
#
# A real step needs more than this at its peak, because operations have results that live for a
# moment. The largest are the logits: 16 · 1,024 · 50,304 numbers, 3 GiB in fp32, and their
# gradient. Compiled code keeps less, since fused operations store no results in between. This is
# one compiled step, from the allocator's own history, followed by the kernels of the next step:
#
# .. run::
#    :expect: GiB
#    :elsewhere: it needs a GPU
#    :timeout: 400
#
#    torchrun --standalone --nproc_per_node=gpu -m docs.labs.gpu_step 16 --compile

# %%
log = lab.run("torchrun --standalone --nproc_per_node=gpu -m docs.labs.gpu_step 16 --compile")
points = re.findall(r"([\d.]+) ms \| +([\d.]+) GiB \| (\w+)", log)
if points:
    times, sizes = ([float(point[at]) for point in points] for at in (0, 1))
    figure, axes = lab.picture(
        f"The memory of tensors in one step: from {sizes[0]:.1f} GiB it rises in the forward pass "
        f"to a peak of {max(sizes):.1f} GiB, and falls in the backward pass."
    )
    axes.fill_between(times, sizes, step="post", alpha=0.4)
    for name in ("backward", "optimizer"):
        begin = next(time for time, _, phase in points if phase == name)
        axes.axvline(float(begin), color=lab.COLORS[1], linewidth=1)
        axes.annotate(f" {name}", (float(begin), max(sizes)))
    axes.set(xlabel="milliseconds", ylabel="GiB", ylim=0)

# %% [markdown]
# The lab uses two tools that you can use in any script. ``torch.cuda.memory`` records every
# allocation with the line that made it, and https://docs.pytorch.org/memory_viz draws the file:
#
# .. literalinclude:: ../labs/gpu_step.py
#    :pyobject: remembered
#
# And ``torch.profiler`` records every kernel with its stream. DDP's all-reduces run on a stream of
# NCCL, beside the stream that computes. Their time "beside another stream" is hidden; only the rest
# makes a step longer. With one GPU there is no second stream. :doc:`beyond_look_inside` reads such
# a trace across ranks.

# %% [markdown]
# The same bits on a GPU
# ----------------------
#
# On a CPU this trainer computes the same bits in each run. On a GPU it does not: some kernels add
# numbers in the order in which their threads finish, and each order rounds differently. On an
# NVIDIA H200 (PyTorch 2.11), two runs of the preset ``gpu`` had the training losses 2.4849 and
# 2.4788 after 50 steps. If such a run differs from another, you cannot tell a mistake from chance.
#
# .. run::
#    :expect: mingpt@11 does
#    :status: 2
#
#    python -m tools.series run mingpt@10 --data LICENSE --deterministic
#
# .. lesson-diff:: mingpt
#    :edit: the-same-bits
#    :confirmed: cc0a6426a563
#
#    ``use_deterministic_algorithms`` makes PyTorch choose kernels that add in a fixed order, in
#    compiled code too. If an operation has none, it raises an error. The library cuBLAS has a
#    setting for this in the environment, which it reads before its first matrix product. So both
#    lines come before the model.
#
#    With the option, on the same H200, three runs of 150 steps with dropout ended with equal
#    weights: two undisturbed, and one that was killed with SIGKILL after step 100 and resumed. That
#    held with ``--compile`` and without it. Compiled and not compiled are different programs, and
#    their weights differ.
#
#    The bits depend on the number of processes, the kind of GPU and the version of PyTorch. With
#    several GPUs they also depend on the way NCCL adds, which it chooses by how the GPUs are
#    connected.
#
# The probe shows that the setting is on. A CPU needs none: there the weights are the same without
# it.
#
# .. run::
#    :expect: (?s)weights (\S+)\n.*deterministic algorithms.*weights \1\n
#    :mark: deterministic algorithms
#
#    python -m tools.series run --probe mingpt@11 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 5
#    python -m tools.series run --probe mingpt@11 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 5 --checkpoint_path again.pt --deterministic
#
# This is ``mingpt/trainer.py``, line for line. What the option costs, and whether it holds, takes a
# GPU and three runs, the first one without it:
#
# .. run::
#    :expect: (?m)^equal
#    :mark: tokens/s
#    :elsewhere: it needs a GPU
#
#    torchrun --standalone --nproc_per_node=gpu -m mingpt.main gpu --total_steps 300 --log_every 100
#    torchrun --standalone --nproc_per_node=gpu -m mingpt.main gpu --total_steps 300 --log_every 100 --deterministic --checkpoint_path exact.pt
#    torchrun --standalone --nproc_per_node=gpu -m mingpt.main gpu --total_steps 300 --log_every 100 --deterministic --checkpoint_path again.pt
#    python docs/labs/same.py exact.pt again.pt

# %% [markdown]
# When the memory is full
# -----------------------
#
# The first allocation that does not fit raises ``torch.OutOfMemoryError``. The scripts print it in
# one line, with what was asked for and what is free. In this order:
#
# #. **Look who else uses the GPU**: ``nvidia-smi`` lists processes. A rank of an earlier run may
#    have survived, or a colleague works there.
# #. **Lower the micro-batch.** The result stays the same up to rounding, only slower.
# #. **Compile**, and use ``bf16``. Both keep less for the backward pass.
# #. **Compute activations again** in the backward pass, with ``torch.utils.checkpoint``: a third
#    more arithmetic, and most of what is kept goes.
# #. **Shard** the optimizer's state, then gradients and weights: "When DDP is not enough" in
#    :doc:`5c_fast`.
#
# If the message says that much memory is "reserved by PyTorch but unallocated", it is in pieces:
# ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`` helps. All ranks must have room for the
# largest share, so the rank with the least free memory decides.

# %% [markdown]
# From one GPU to eight, and to nodes
# -----------------------------------
#
# The command changes in one number, and the batch per process with it: the GPT divides
# ``--batch_size`` among the processes. Three things decide how fast the GPUs exchange gradients.
#
# **How they are connected.** ``nvidia-smi topo -m`` prints a matrix. ``NV18`` means 18 NVLinks between two
# GPUs, ``PIX`` and ``PXB`` PCIe switches, ``PHB`` and ``NODE`` a way through the CPU, and ``SYS`` one between
# two CPUs. From left to right each is slower.
#
# **Where the processes run.** On a machine with two CPUs, a process should run on the one that its
# GPU hangs on. torchrun binds it there with ``--numa-binding=node``; PyTorch's `documentation
# <https://docs.pytorch.org/docs/main/elastic/numa.html>`__ expects 1 to 10 %.
#
# **Whether they reach each other directly.** NCCL copies from GPU to GPU (*P2P*) if the driver says
# that it works. NVIDIA's drivers do not offer it on most GeForce cards. On some machines with such
# cards, or with an IOMMU, P2P is offered and hangs or returns zeros: with two RTX 4090,
# ``all_reduce_perf`` of NVIDIA's own tests hung (`issue 117
# <https://github.com/NVIDIA/nccl-tests/issues/117>`__). If the first all-reduce hangs, try
# ``NCCL_P2P_DISABLE=1``. If that helps, fix the machine, since all gradients now go through host
# memory.
#
# Other variables that are worth knowing: ``NCCL_SOCKET_IFNAME`` names the network interface,
# ``NCCL_IB_DISABLE=1`` shows whether InfiniBand is the fault, ``NCCL_ALGO=Ring`` fixes how sums are
# ordered, within one topology. NVIDIA's `list
# <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html>`__ says which of them are for
# debugging only, and should be removed afterwards.

# %% [markdown]
# What NCCL says
# --------------
#
# .. run::
#    :expect: AllReduce
#    :elsewhere: it needs a GPU; most lines are left out
#
#    NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,COLL torchrun --standalone --nproc_per_node=1 multinode.py 1 1
#
# The machine had no InfiniBand, so NCCL chose TCP. The broadcast sends the 21 parameters when DDP is
# constructed. Then each of the 64 steps has an all-reduce of 21 gradients. One rank has no neighbours,
# so other lines in this list are from `NVIDIA's documentation
# <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/logging.html>`__ of NCCL
# 2.30. Other versions word some of them differently.
#
# With ``NCCL_DEBUG=INFO`` in its environment, each rank prints what NCCL does. Each line begins with
# ``host:pid:tid [device] NCCL INFO``. By default it prints the subsystems ``INIT``, ``BOOTSTRAP`` and
# ``ENV``. ``NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,NET,P2P,SHM,COLL`` adds the others of this list.
# ``NCCL_DEBUG_FILE=nccl.%h.%p`` writes one file per process.
#
# - ``NCCL_SHM_DISABLE set by environment to 1.`` (ENV): NCCL has read this variable. If yours is
#   missing here, it did not reach the process.
# - ``Using network IB`` (INIT): the network between nodes. If you have InfiniBand and read
#   ``Socket`` here, NCCL uses TCP, and every all-reduce between nodes is slow.
# - ``ncclCommInitRankConfig … rank 0 nranks 2 … commId 0x… - Init START`` (INIT): this rank joins
#   a communicator, NCCL's process group. ``commId`` is equal on all its ranks. In a hang at the
#   start, look for the rank without this line.
# - ``Ring 00 : 1 -> 0 -> 1`` (GRAPH): this rank's neighbours in ring 0: it receives from rank 1
#   and sends to rank 1.
# - ``Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`` (P2P): the path to another rank, here directly
#   from GPU to GPU.
# - ``Channel 00 : 0[0] -> 1[1] via SHM/direct/direct`` (SHM): the path goes through the memory of
#   the host. Between GPUs with NVLink this is a bad sign, since NCCL prefers the direct path.
# - ``Channel 00/0 : 0[0] -> 1[1] [send] via NET/Socket/0`` (NET): the path goes through the
#   network, here over TCP.
# - ``AllReduce: opCount 0 … count 2 … [nranks=2]`` (COLL): a call, with its number in the
#   communicator and its size. In a hang, compare the last ones of all ranks, as with the flight
#   recorder.
# - ``NCCL WARN …``: an error, or its likely cause. Also printed with ``NCCL_DEBUG=WARN``, which
#   you can always leave on.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5d_gpus
#    :next: :doc:`your_script`, to do the same with a script of yours
#    :also: torch.use_deterministic_algorithms, torch.cuda.memory.memory_allocated, torch.profiler.profile
#
#    You can now say which change makes a GPU faster and by how much, count a step's memory before
#    you have the GPU, and repeat a run bit for bit.
#
#    .. fold:: A model has 1 billion weights and trains in bf16 autocast with AdamW. Does it fit into 24 GB?
#
#       Weights, gradients and two averages take 16 bytes per weight, so 16 GB. 8 GB are left for
#       what the forward pass keeps and for the results of a moment. That is enough for a small
#       micro-batch, if the GPU has nothing else to hold.
#
#    .. fold:: Two runs with the same seed differ on a GPU. Is that a bug?
#
#       Not by itself: kernels may add in any order. Repeat both with ``--deterministic``. If they
#       still differ, something does depend on chance, such as the order of files or an unseeded
#       generator.
#
#    .. fold:: A step takes 40 ms, and NCCL's kernels run for 15 ms, of which 14 ms beside others. Would a faster network help?
#
#       Hardly. Only 1 ms of the step is not hidden.
