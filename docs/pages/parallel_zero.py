# %% [markdown]
"""
ZeRO by hand: a shard of everything
===================================
"""

# %% [markdown]
# **You will be able to** say what each stage of ZeRO divides among the processes, what it sends,
# and why the result stays the same.
#
# **You need** the script of :doc:`4_multinode`.
#
# DDP keeps three things on every process: the weights, their gradients, and the optimizer's state.
# With AdamW in fp32, these are 4 + 4 + 8 = 16 bytes per weight, and more processes do not make them
# fewer. A model of 7 billion weights takes 112 GB on each GPU.
#
# ZeRO (*zero redundancy optimizer*, `Rajbhandari et al. 2020 <https://arxiv.org/abs/1910.02054>`__)
# removes these copies, in three stages: the first divides the optimizer's state, the second also
# the gradients, the third also the weights. Each of the three edits on this page adds a stage to
# :doc:`4_multinode`'s script, whose model has 21 weights. All shards must have the same size. So
# each of two processes keeps 11 numbers, and the last shard ends with a zero. The script's
# optimizer is SGD with momentum, whose state has one number per weight.

# %% [markdown]
# Stage 1: the optimizer's state
# ------------------------------
#
# SGD and Adam treat each number by itself. So a process can update some of the weights, and needs
# the state of these only. It sends the new weights to the other processes. (Muon looks at whole
# matrices.)
#
# .. lesson-diff:: zero_by_hand
#    :edit: shard-the-state
#    :confirmed: dd899ff83ac4
#
#    **One vector.** ``self.weights`` has all weights, one after the other. ``vector_to_parameters``
#    makes the model's parameters *views* of it, which share its memory. So a line that changes the
#    vector changes the model.
#
#    **The shard** is this rank's part, and the only tensor that the optimizer knows. Therefore
#    ``optimizer.zero_grad()`` would leave the model's gradients as they are, and the next
#    ``backward()`` would add to them. ``model.zero_grad()`` takes its place.
#
#    **A step.** DDP still averages the gradients, all of them. Each rank updates its shard. Then an
#    *all-gather* sends every rank the shards of all others.
#
#    **A checkpoint** has the whole momentum, so a run may continue with another number of processes.
#    Every rank must call ``_whole``, so this comes before the ``return`` of those that do not save.
#
# DDP keeps 21 numbers of each kind, and its buckets, which hold the gradients again
# (``gradient_as_bucket_view=True`` saves that copy). The probe counts the numbers that a process keeps
# until the next step, without buckets:
#
# .. run::
#    :expect: keeps 32 weights, 32 gradients, 11 of state
#    :mark: keeps
#
#    python -m tools.series run --probe zero_by_hand@1 5 5
#
# The shard and its gradient are copies here, so there are 11 more of both.

# %% [markdown]
# Stage 2: the gradients
# ----------------------
#
# Each rank uses about half of the 21 mean gradients that DDP's all-reduce gives it. An all-reduce
# has two halves (:doc:`1a_speed`): a *reduce-scatter* leaves each rank the sums of one part, and an
# all-gather sends them to all. The first half is enough.
#
# .. lesson-diff:: zero_by_hand
#    :edit: scatter-the-gradients
#    :confirmed: c6e7bb4d875a
#
#    DDP goes, and the common seed keeps the initial weights equal. ``reduce_scatter`` gets one part
#    for each rank, and leaves rank *r* the sum, over all ranks, of part *r*. ``model.zero_grad()``
#    frees the model's gradients before the step. The copy in ``grads`` lives until the function
#    returns.
#
# .. run::
#    :expect: keeps 32 weights, 11 gradients, 11 of state
#    :mark: keeps
#
#    python -m tools.series run --probe zero_by_hand@2 5 5
#
# Over NCCL, one reduce-scatter and one all-gather send what one all-reduce sends. So stage 2 sends
# as much as DDP, or more if it reduces each of several micro-batches (:doc:`5c_fast`).

# %% [markdown]
# Stage 3: the weights
# --------------------
#
# Only ``forward()``, ``backward()`` and a checkpoint need whole weights.
#
# .. lesson-diff:: zero_by_hand
#    :edit: free-the-weights
#    :confirmed: 0c046ec4fecd
#
#    ``resize_(0)`` frees the memory of ``weights``, whose views, the model's parameters, remain.
#    They are of no use until ``_gather`` gives ``weights`` its memory back and fills it. (A save
#    gathers them, too; that memory stays until the next step.)
#
# .. run::
#    :expect: keeps 11 weights, 11 gradients, 11 of state
#    :mark: keeps
#
#    python -m tools.series run --probe zero_by_hand@3 5 5

# %%
import re

import lab

KINDS = ("weights", "gradients", "state")
stages = {"DDP": [21, 21, 21]}
logs = (
    lab.run("python -m tools.series run --probe zero_by_hand@1 5 5"),
    lab.run("python -m tools.series run --probe zero_by_hand@2 5 5"),
    lab.run("python -m tools.series run --probe zero_by_hand@3 5 5"),
)
for number, log in enumerate(logs, 1):
    found = re.search(r"keeps (\d+) weights, (\d+) gradients, (\d+) of state", log)
    stages[f"ZeRO {number}"] = [int(count) for count in found.groups()]

told = "; ".join(f"{name} {sum(counts)}" for name, counts in stages.items())
figure, axes = lab.picture(
    f"The numbers that each of two processes keeps between two steps, for 21 weights, without DDP's buckets: {told}.",
    height=2.2,
)
left = [0] * len(stages)
for kind, counts in zip(KINDS, zip(*stages.values(), strict=True), strict=True):
    drawn = axes.barh(list(stages), counts, left=left, label=kind)
    axes.bar_label(drawn, label_type="center")
    left = [before + count for before, count in zip(left, counts, strict=True)]
axes.invert_yaxis()
axes.set(xlabel="numbers per process")
figure.legend(loc="outside upper right", ncols=3)

# %% [markdown]
# The same result
# ---------------
#
# Nothing on this page changes what is computed, only where. (A model with buffers would also need
# DDP's broadcast of them.) With two processes, each stage ends with the weights and the momentum of
# DDP, bit for bit:
#
# .. run::
#    :expect: zero_by_hand.pt from multigpu_torchrun.pt: weights 0\.0e\+00, momenta 0\.0e\+00
#    :mark: weights
#
#    python -m tools.series run multigpu_torchrun 20 20 | tail -n 1
#    python -m tools.series run zero_by_hand@1 20 20 | tail -n 1
#    python -m tools.series run zero_by_hand@2 20 20 | tail -n 1
#    torchrun --standalone --nproc_per_node=2 -m parallel.zero_by_hand 20 20 | tail -n 1
#    python docs/labs/distance.py multigpu_torchrun.pt zero_by_hand_1.pt zero_by_hand_2.pt zero_by_hand.pt
#
# With more processes, a reduce-scatter may add in another order than an all-reduce, so the last
# digits may differ.

# %% [markdown]
# What it costs
# -------------
#
# For AdamW in fp32 on *N* processes over NCCL, without copies, in a step of one micro-batch:
#
# =======  ==================  ==========  =========================================
# stage    bytes per weight    for N = 8   numbers sent per weight and step, at most
# =======  ==================  ==========  =========================================
# DDP      16                  16          2
# 1        8 + 8/N             9           3 here, 2 with a reduce-scatter
# 2        4 + 12/N            5.5         2: a reduce-scatter, an all-gather
# 3        16/N                2           2 here, 3 in practice
# =======  ==================  ==========  =========================================
#
# This script gathers all weights at once, so *during* a step each process needs room for the whole
# model and its gradient. Real implementations divide the model into layers, or groups of them, and
# gather each one before it computes and free it afterwards. ``backward()`` gathers each again, so
# each weight costs 3 numbers. Each layer's gradient is scattered when it is complete, so sending
# overlaps computing.
#
# PyTorch has stage 1 as ``ZeroRedundancyOptimizer`` (:doc:`beyond_zero`), and stage 3, layer by
# layer, as FSDP (:doc:`parallel_fsdp`). With ``reshard_after_forward=False``, FSDP is close to
# stage 2. DeepSpeed has all three (:doc:`three_systems`).

# %% [markdown]
# What could go wrong
# -------------------
#
# **Ranks hang at the first save.** Only the rank that saves calls ``all_gather``.
#
# **Clipping changes the direction.** ``clip_grad_norm_`` on one rank's shard finds the norm of
# that part, and each rank scales by another factor. Add up the squares over all ranks first. FSDP's
# tensors do so by themselves.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_zero
#    :next: :doc:`parallel_fsdp`, which does this for a GPT, block by block
#    :also: torch.distributed.optim.ZeroRedundancyOptimizer
#
#    You can now say who keeps what in each stage of ZeRO, and what each stage sends.
#
#    .. fold:: A model of 3 billion weights trains with AdamW in fp32 on 4 GPUs of 24 GB. Which stage is enough?
#
#       The third: 3 × 16/4 = 12 GB. The second takes 3 × (4 + 12/4) = 21 GB, which leaves hardly
#       any room for activations.
#
#    .. fold:: Rank 1 fails. Can the others continue without it?
#
#       No. It has the only copy of its shard of the state, and in stage 3 of the weights, too. All
#       start again from the last checkpoint.
