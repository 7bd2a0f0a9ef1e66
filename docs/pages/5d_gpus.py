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
# Most numbers of this page are not measured yet, and a note marks each gap. What the page says
# about speeds is an explanation, not a result.

# %% [markdown]
# The same scripts
# ----------------
#
# The first four scripts run on GPUs unchanged: ``utils.py`` finds the GPUs, whose default backend
# is NCCL. ``--nproc_per_node=gpu`` starts one process per GPU. One process on one GPU must end with
# the weights of ``single_gpu.py``:
#
# .. run::
#    :expect: (?m)^equal
#    :elsewhere: it needs a GPU
#
#    python single_gpu.py 50 10 | tail -n 2
#    torchrun --standalone --nproc_per_node=1 multinode.py 50 10 | tail -n 2
#    python docs/labs/same.py single_gpu.pt multinode.pt
#
# To train on the CPU of a machine that has GPUs, put ``CUDA_VISIBLE_DEVICES=``, without a value, in
# front of the command.

# %% [markdown]
# What makes it fast
# ------------------
#
# The model is GPT-2 with 124 million weights, and each GPU takes 16 or 64 sequences of 1,024 random
# tokens. Most rows of the table that the command prints add one change to the row above. *MFU*
# (model FLOPs utilization) is the share of the GPU's theoretical peak that the model's arithmetic
# reaches.
#
# .. run::
#    :expect: compiled whole
#    :elsewhere: it needs a GPU and a clone of nanoGPT
#    :timeout: 560
#
#    torchrun --standalone --nproc_per_node=gpu -m docs.labs.gpu_ladder --nanogpt ~/nanoGPT

# %%
import re

import lab

log = lab.run(
    "torchrun --standalone --nproc_per_node=gpu -m docs.labs.gpu_ladder --nanogpt ~/nanoGPT",
)
rows = re.findall(r"^(.+?) +\| +([\d,]+) tokens/s", log, re.MULTILINE)
rows = [(name, int(speed.replace(",", ""))) for name, speed in rows]
if log:
    fastest, most = max(rows, key=lambda row: row[1])
    figure, axes = lab.picture(
        f"Tokens per second of each row of the table. The fastest, {fastest}, has {most:,}.",
        height=3.2,
    )
    colors = [lab.COLORS["nanoGPT" in name] for name, _ in rows]
    axes.barh([name for name, _ in rows], [speed for _, speed in rows], color=colors)
    axes.set(xlabel="tokens per second")
    axes.invert_yaxis()

# %% [markdown]
# - **tf32**: the GPU's *Tensor Cores*, its units for matrix products, multiply with fewer bits, but
#   each number still takes 32 bits in memory.
# - **bf16**, the trainer's default on a GPU that has it: Tensor Cores are twice as fast, and memory
#   moves half the bytes.
# - **vocabulary padded**: GPT-2 has 50,257 tokens, an odd number, so most rows of logits begin at
#   addresses from which Tensor Cores read slowly. The model pads the matrix to 50,304 rows, but
#   only within the product.
# - **compiled**: ``torch.compile`` fuses the small operations, by default only within a bucket of
#   DDP (:doc:`5c_fast`).
# - **micro-batch of 64**: larger products use the GPU better, until its memory is full.
#
# `nanoGPT <https://github.com/karpathy/nanoGPT>`__, at commit ``3adf61e``, trains a model of the
# same shape, biases included, on the same tokens in the same process. Published by others, not
# measured here: on 8 A100, nanoGPT trains GPT-2 in about 4 days. In the lecture of `build-nanogpt
# <https://github.com/karpathy/build-nanogpt>`__, a step on one A100 falls from 1,000 ms to 333 with
# tf32, 300 with bf16, 130 compiled, 96 with fused attention, 93 with a padded vocabulary, and 90
# with a fused AdamW.

# %% [markdown]
# What the memory holds
# ---------------------
#
# The memory of a training step can be counted without a GPU, on *fake tensors*, which have shapes
# but no numbers:
#
# .. run::
#    :expect: ^16 +\| +0.46 \| +0.46 \| +0.93 \| +9.9
#    :mark: ^16
#
#    python -m docs.labs.gpu_memory 1 4 16 64
#
# Weights, gradients and AdamW's averages do not depend on the batch: 16 bytes per weight. What a
# ``bf16`` step keeps also has a fixed part: 0.23 GiB, autocast's 16-bit copies of the matrices. The
# rest grows by 0.6 GiB per sequence. With 16 sequences, almost half of the rest are
# log-probabilities: 16 · 1,024 · 50,257 numbers in bf16 and, to add up the losses, in fp32,
# together 4.6 GiB.
#
# At its peak a real step needs more: for a moment, memory also holds the gradients of the
# log-probabilities and of the logits. Compiled code keeps less: fused operations store no
# results in between, and cheap ones are computed again in the backward pass. ``gpu_step.py`` counts
# the memory and the kernels of a compiled step:
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
points = [(float(time), float(size), phase) for time, size, phase in points]
if log:
    times, sizes, phases = zip(*points, strict=True)
    peak = max(sizes)
    figure, axes = lab.picture(
        f"The memory of tensors in one step. It begins at {sizes[0]:.1f} GiB, has its peak of "
        f"{peak:.1f} GiB in the phase {phases[sizes.index(peak)]}, and ends at {sizes[-1]:.1f} GiB."
    )
    axes.fill_between(times, sizes, step="post", alpha=0.4)
    for begin, phase in re.findall(r"([\d.]+) ms \| (\w+) begins", log):
        axes.axvline(float(begin), color=lab.COLORS[1], linewidth=1)
        axes.annotate(f" {phase}", (float(begin), peak))
    axes.set(xlabel="milliseconds, when Python asked for the memory", ylabel="GiB", ylim=0)

# %% [markdown]
# The lab records every allocation with the line that made it, in a file that
# https://docs.pytorch.org/memory_viz draws. This works in any script:
#
# .. literalinclude:: ../labs/gpu_step.py
#    :pyobject: remembered
#
# ``torch.profiler`` records every kernel with its stream. DDP's all-reduces run on NCCL's own
# stream, beside the stream that computes, so ``backward()`` can hide them. But NCCL takes some of
# the GPU's multiprocessors from ``backward()``. :doc:`beyond_look_inside` reads such traces across
# ranks.

# %% [markdown]
# The same bits on a GPU
# ----------------------
#
# On a CPU this trainer computes the same bits in each run. On a GPU some kernels add numbers in the
# order in which their threads finish, and each order rounds differently.
# On an NVIDIA H200 (PyTorch 2.11), two runs of the preset ``gpu`` with ``--no_compile`` had the
# training losses 2.4849 and 2.4788 after 50 steps. From such a difference, you cannot tell a
# mistake from chance.
#
# .. lesson-diff:: mingpt
#    :edit: the-same-bits
#    :confirmed: cc0a6426a563
#
#    ``use_deterministic_algorithms`` makes PyTorch choose kernels that add in a fixed order, in
#    compiled code too. If an operation has no such kernel, PyTorch raises an error. The library
#    cuBLAS promises a fixed order on several streams only if ``CUBLAS_WORKSPACE_CONFIG`` says so.
#    It reads this variable once, before its first matrix product, so both lines come before the
#    model.
#
#    With ``--deterministic``, three runs of 150 steps with dropout ended with equal weights on the
#    same H200, although one of them was killed after step 100 and resumed. That held with
#    ``--compile`` and without it, but compiled code ends with other weights.
#
#    The bits depend on the number of processes, the kind of GPU and the version of PyTorch. With
#    several GPUs they also depend on how the GPUs are connected, because NCCL chooses the order of
#    its sums by that.
#
# The probe shows that the setting is on. On a CPU the weights are the same without it.
#
# .. run::
#    :expect: (?s)weights (\S+)\n.*deterministic algorithms.*weights \1\n
#    :mark: deterministic algorithms
#
#    python -m tools.series run --probe mingpt@11 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 5
#    python -m tools.series run --probe mingpt@11 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 5 --checkpoint_path again.pt --deterministic
#
# This stage is ``mingpt/trainer.py``, line for line. To see what the option costs and whether it
# works, run this on a GPU:
#
# .. run::
#    :expect: (?m)^equal
#    :mark: tokens/s
#    :show: 0 1
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
# The first allocation that does not fit raises ``torch.OutOfMemoryError``. The scripts print one
# line, with the memory requested and the memory free. Try, in this order:
#
# #. **Look who else uses the GPU**: ``nvidia-smi`` lists processes, such as a rank that survived an
#    earlier run.
# #. **Lower the micro-batch** with ``--micro_batch_size``. Training is slower. Without
#    dropout, the result is the same up to rounding.
# #. **Compile**, and use ``bf16``: less is kept for the backward pass.
# #. **Compute activations again**, then **shard**: :doc:`parallel_memory`.
#
# If PyTorch's own message, in torchrun's report, counts much memory as "reserved by PyTorch but
# unallocated", it may be in pieces that are too small: try
# ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``. (torch 2.9 renamed it
# ``PYTORCH_ALLOC_CONF``, but `2.9 itself ignores that name
# <https://github.com/pytorch/pytorch/issues/183387>`__.)

# %% [markdown]
# From one GPU to eight
# ---------------------
#
# ``--nproc_per_node=gpu`` uses all GPUs of a node, and the trainer divides ``--batch_size`` among
# them. How fast they exchange gradients depends on how they are connected. ``nvidia-smi topo -m``
# prints a matrix. From fast to slow: ``NV18`` means 18 *NVLinks*, NVIDIA's own links; ``PIX`` and
# ``PXB`` mean PCIe switches; ``PHB`` and ``NODE`` a path through the CPU; and ``SYS`` a path
# between NUMA nodes, usually two CPUs. A process should run on the NUMA node of its GPU, as with
# ``--numa-binding=node`` (:doc:`which_rank`).
#
# Over NVLink or PCIe switches, NCCL copies from GPU to GPU (*peer to peer*, P2P) if the driver says
# that this works. If the driver is wrong, the first all-reduce hangs, or copies are zeros (`an
# example <https://github.com/NVIDIA/nccl-tests/issues/117>`__): see "A hang in DDP(model) or in the
# first all-reduce, over NCCL only" on :doc:`symptoms`.

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
# This machine with an H200 had no InfiniBand, so NCCL chose TCP. DDP's constructor broadcasts the
# 21 weights, and each of the 64 steps has an all-reduce of 21 gradients.
#
# To see the lines below, set ``NCCL_DEBUG_SUBSYS=INIT,ENV,P2P,SHM,COLL``. A line begins with
# ``host:pid:tid [device]``. ``NCCL_DEBUG_FILE=nccl.%h.%p`` writes one file per process.
#
# Lines below that are missing above are from `NVIDIA's documentation
# <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/logging.html>`__ of
# NCCL 2.30.
#
# - ``NCCL_SHM_DISABLE set by environment to 1.`` (ENV): NCCL has read this variable. If yours is
#   missing here, it did not reach the process, or NCCL had no use for it.
# - ``Using network IB`` (INIT): the network between nodes. If you have InfiniBand and read
#   ``Socket`` here, NCCL uses TCP, and every all-reduce between nodes is slow.
# - ``ncclCommInitRankConfig … rank 0 nranks 2 … commId 0x… - Init START`` (INIT): this rank joins a
#   communicator, NCCL's process group. ``commId`` is equal on all its ranks. In a hang at the
#   start, look for the rank without this line.
# - ``Channel 00 : 0[0] -> 1[1] via SHM/direct/direct`` (SHM): the path to another rank goes through
#   host memory. Between GPUs with NVLink this is a bad sign, since NCCL prefers the direct path,
#   ``via P2P/CUMEM`` (P2P).
# - ``AllReduce: opCount 0 … count 2 … [nranks=2]`` (COLL): a call and its size. In a hang, compare
#   the last calls of all ranks.
# - ``NCCL WARN …``: an error, or its likely cause. It is also printed with ``NCCL_DEBUG=WARN``,
#   which you can always leave on.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5d_gpus
#    :next: :doc:`parallel_memory`, the first step to a model that does not fit one GPU
#    :also: torch.cuda.memory.memory_allocated, torch.profiler.profile
#
#    You can now say why a change makes a GPU faster, count a step's memory before you have the GPU,
#    and repeat a run bit for bit.
#
#    .. fold:: A model has 1 billion weights and trains in bf16 autocast with AdamW. Does it fit into 24 GB?
#
#       Barely. Weights, gradients and averages take 16 bytes per weight, so 16 GB, and autocast's
#       copies 2 GB more. The other 6 GB are for CUDA itself and what else the forward pass keeps,
#       so the micro-batch must be small.
#
#    .. fold:: Two runs with the same seed differ on a GPU. Is that a bug?
#
#       Not by itself, because kernels may add in any order. Repeat both with ``--deterministic``.
#       If they still differ, something depends on chance, such as an unseeded generator.
