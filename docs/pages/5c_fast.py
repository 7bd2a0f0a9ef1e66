# %% [markdown]
"""
Fast training
=============
"""

# %% [markdown]
# **You will be able to** train in 16 bits, use batches that do not fit into memory, and say when a
# second process makes a run faster and when slower.
#
# **You need** the stage ``mingpt@7`` of :doc:`5b_robust`.

# %% [markdown]
# Mixed precision
# ---------------
#
# So far the trainer computes only in ``fp32``, floating-point numbers of 32 bits. In 16 bits a
# matrix product moves half as many bytes, and the Tensor Cores of a GPU compute it many times as
# fast. The CPU of this page has none; :doc:`5d_gpus` is about GPUs.
#
# .. lesson-diff:: mingpt
#    :edit: mixed-precision
#    :confirmed: 1abd5ee46283
#
#    Within ``autocast`` PyTorch chooses the precision of each operation: 16 bits for matrix
#    products, and 32 for operations that need them, such as sums of losses. Weights, gradients, the
#    optimizer's averages and DDP's messages stay in 32 bits.
#
#    ``bf16`` has the range of ``fp32`` with fewer digits, and needs no more code. ``fp16`` has a
#    smaller range: in ``backward()``, gradients of activations below 3 · 10\ :sup:`-8` become 0. So
#    the scaler multiplies the loss by a large factor, and ``unscale_`` divides the gradients by it
#    before the optimizer's step. If a gradient overflows, the scaler skips the step and halves the
#    factor, so the checkpoint needs the factor too. In other precisions the scaler does nothing.
#
#    ``unscale_`` must come before clipping. Otherwise the scaled gradients are clipped, and the
#    division then makes them far too small. AdamW hides this mistake in small models only
#    (:doc:`beyond_scale_lr`).
#
# .. run::
#    :expect: (?s)weights (\S+)\n.*weights (?!\1)
#    :mark: probe
#
#    python -m tools.series run --probe mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1
#    python -m tools.series run --probe mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --precision bf16 --checkpoint_path bf16.pt
#    python -m tools.series run --probe mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --precision fp16 --checkpoint_path fp16.pt
#
# The losses differ little, but ``weights``, the sum of a rank's weights, shows that the runs
# differ.
#
# Mixed precision also saves the memory of *activations*, which the forward pass keeps for the
# backward pass. In exchange ``autocast`` keeps a 16-bit copy of the weights:
#
# .. run::
#    :expect: (?s)activations 32 MB in float32.*activations 16 MB in bfloat16, weights 2 MB in float32, gradients 2 MB in float32, copies of weights \d MB in bfloat16
#
#    python docs/labs/activations.py

# %% [markdown]
# Accumulating gradients
# ----------------------
#
# If a rank's share of the batch does not fit into memory, the rank can compute it in parts of
# ``--micro_batch_size`` sequences. ``mingpt@8`` updates the weights after every part, here of one
# sequence:
#
# .. run::
#    :expect: Step +5 \| train
#    :mark: Step +\d \| train
#
#    python -m tools.series run mingpt@8 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --micro_batch_size 1
#
# The losses are not those of the ``fp32`` run above, although the option should only save memory.
#
# .. lesson-diff:: mingpt
#    :edit: accumulate-gradients
#    :confirmed: dd61cc2eae2e
#
#    ``_run_step`` now updates the weights once, after all parts. The gradients of the parts add up,
#    so each loss is divided by the number of parts.
#
#    DDP would all-reduce after each part, and send several times as much for the same result.
#    ``no_sync`` prevents this in all parts but the last. It must enclose the forward pass too,
#    because DDP decides there whether the next ``backward()`` sends. With only ``backward()``
#    inside, DDP sends as often as before, and no loss curve shows this mistake.
#
# .. run::
#    :expect: Step +5 \| train
#    :mark: Step +\d \| train
#
#    python -m tools.series run mingpt@9 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1 --micro_batch_size 1
#
# The losses are those of the ``fp32`` run again.

# %% [markdown]
# Fewer messages, copies and kernels
# ----------------------------------
#
# DDP's first :term:`bucket` has 1 MiB, so that sending begins early in ``backward()``. The
# gradients of ``gpt-micro`` have 3 MB, so they take two all-reduces:
#
# .. run::
#    :expect: in 2 all-reduces
#    :mark: probe
#
#    python -m tools.series run --probe mingpt@9 --data LICENSE --block_size 16 --total_steps 5
#
# .. lesson-diff:: mingpt
#    :edit: waste-nothing
#    :confirmed: 26c720534f75
#
#    If ``bucket_cap_mb`` is set, the first bucket is as large as the others, so this model needs
#    one all-reduce per step. In our measurements with two processes, a second all-reduce made the
#    step 1 to 5 % slower (``tools/bench/results/ddp_cost.txt``).
#
#    After its first backward pass, DDP sorts the gradients by arrival. With more than two ranks,
#    this order decides how the sums round. So that a resumed run's first step uses sorted buckets,
#    ``_load_checkpoint`` makes one pass and ignores its gradients.
#
#    With ``gradient_as_bucket_view`` the gradients lie in the buckets, which saves one copy per
#    step and, without accumulation, the memory of one set of gradients.
#
#    ``--compile`` fuses the small operations between the matrix products, and those of the loss,
#    into few kernels. Within DDP, the compiler cuts the graph where buckets end: then DDP sends a
#    bucket while ``backward()`` computes the next. But nothing is fused across a cut. Cuts help
#    only a pass that sends. One process sends nothing, and with accumulation only the last pass
#    sends, so in both cases the trainer allows no cuts.
#
#    If ``torch.compile`` wrapped the model inside DDP, every weight's name in a checkpoint would
#    begin with ``_orig_mod.``.
#
# .. run::
#    :expect: in 1 all-reduce\b
#    :mark: probe
#
#    python -m tools.series run --probe mingpt@10 --data LICENSE --block_size 16 --total_steps 5

# %% [markdown]
# Two processes: slower and faster
# --------------------------------
#
# A second process halves what each process computes, and adds an :term:`all-reduce`. These are the
# last lines of two runs with a very small step, two sequences of 16 characters:
#
# .. run::
#    :expect: tokens/s
#    :mark: tokens/s
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --batch_size 2 --total_steps 300 --log_every 100 | grep train | tail -n 1
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --batch_size 2 --total_steps 300 --log_every 100 --checkpoint_path two.pt | grep train | tail -n 1
#
# And with a larger step, 64 sequences of 64 characters, and the default model:
#
# .. run::
#    :expect: tokens/s
#    :mark: tokens/s
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 -m mingpt.main --data LICENSE --batch_size 64 --total_steps 20 --log_every 5 | grep train | tail -n 1
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --batch_size 64 --total_steps 20 --log_every 5 --checkpoint_path two.pt | grep train | tail -n 1
#
# On two free cores, the second process makes the small step slower and the large one faster. (The
# losses of the small runs differ because rounding errors grow: :doc:`5a_exact`.)
#
# To see why, let a step take the time C on one process. On two it takes C / 2, and R for the
# all-reduce. So two processes win if R is less than C / 2.
#
# * C grows with the tokens of a step. R does not: a weight has one gradient, whatever the batch.
# * One part of R grows with the bytes: 0.4 MB for the small model, 3 MB for the other. The rest is
#   latency, which grows with the number of processes (:doc:`1a_speed`).
#
# So enlarge the batch with the number of processes, but read :doc:`batch_and_learning_rate` first.

# %% [markdown]
# What it buys
# ------------
#
# This table was measured earlier. A row's factor is its speed over that of the first row.
# Differences below a tenth are noise:
#
# .. run::
#    :expect: products by MKL
#
#    cat tools/bench/results/ladder.txt

# %%
import re

import lab

log = lab.run("cat tools/bench/results/ladder.txt")
rows = [
    (name, float(factor))
    for name, factor in re.findall(r"^(.+?)  +[\d,]+ tokens/s +× ([\d.]+)", log, re.MULTILINE)
]
pairs = [name.startswith(("two processes", "two, ")) for name, _ in rows]

figure, axes = lab.picture(
    "Speed over that of the first row: "
    + "; ".join(f"{name} {factor:.2f}" for name, factor in rows)
    + "."
)
for two, label in enumerate(["one process", "two processes"]):
    places = [place for place, pair in enumerate(pairs) if pair == two]
    factors = [rows[place][1] for place in places]
    bars = axes.barh(places, factors, color=lab.COLORS[two], label=label)
    axes.bar_label(bars, fmt=" %.2f")
axes.set(
    yticks=range(len(rows)),
    yticklabels=[name for name, _ in rows],
    xticks=[0, 1],
    xlabel="speed, as a multiple of the first row",
)
axes.invert_yaxis()
figure.legend(loc="outside upper center", ncols=2)

# %% [markdown]
# The batch has 12 sequences unless a row says otherwise. A process has one thread, except in the
# rows with two threads. The second row and the one with compiled code multiply matrices with the
# library MKL, which is slower here than oneDNN, the library of the other rows (:doc:`internals`).
#
# * With 12 sequences, two processes are 1.26 times as fast as one. Two threads of one process,
#   which need no all-reduce, reach 1.42. With 64 sequences per process, two
#   processes are 48,880 / 28,937 = 1.69 times as fast.
# * ``bf16`` (1.04 against 1.26) and ``--compile`` (1.01 against 1.42) are slower on this CPU. They
#   suit GPUs: :doc:`5d_gpus`.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 5c_fast
#    :next: :doc:`5d_gpus`, where all this pays
#    :also: torch.nn.parallel.DistributedDataParallel.no_sync, torch.nn.Module.compile
#
#    You can now train in 16 bits, take a batch in parts, and predict whether a second process
#    makes a step faster.
#
#    .. fold:: One process takes 4 ms for a step, and an all-reduce takes 3 ms. Nothing overlaps. When do two processes win?
#
#       With this batch they take 4 / 2 + 3 = 5 ms and lose. With twice the batch they take 4 + 3 =
#       7 ms against 8, and win, because the all-reduce still takes 3 ms.
#
#    .. fold:: In ``fp16``, one gradient overflows on rank 1 only. Why does rank 0 skip the step as well?
#
#       DDP averages the gradients before the scaler looks at them, so one infinite gradient makes
#       every rank's average infinite or not a number. Every rank skips the step and halves the
#       factor, so they stay equal.
