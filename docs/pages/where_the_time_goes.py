# %% [markdown]
"""
Where the time goes
===================
"""

# %% [markdown]
# **You will be able to** measure the four parts of a training step on each rank, and choose a
# remedy for the part that is too large.
#
# **You need** the script of :doc:`4_multinode`.

# %% [markdown]
# Four parts of a step
# --------------------
#
# With DDP, each rank's step has four parts:
#
# Loader
#    The rank waits for its next batch.
#
# Computing
#    Forward, backward and the optimizer's step.
#
# Communication
#    The all-reduce of the gradients, from the moment at which *all* ranks have entered it.
#
# Waiting
#    The time in the same all-reduce until the last rank enters it.
#
# One rank cannot tell the last two apart, because both pass inside one call, but all ranks together
# can. **The last rank to enter the all-reduce does not wait, so the shortest duration among the
# ranks is communication, and what others have beyond it is waiting.**
#
# To time DDP's all-reduces, register a communication hook, a function that DDP calls instead of its
# own all-reduce:
#
# .. literalinclude:: ../labs/where_time_goes.py
#    :pyobject: timed_all_reduce
#
# Computing is the rest of the step. It can also be measured directly: within ``model.no_sync()``
# DDP sends nothing. (Each rank then trains its own model, so do this in a copy of your run.)

# %% [markdown]
# Five trainings
# --------------
#
# The lab trains a small network on two processes, once healthy and then with each of four faults:
#
# - a sample takes 0.25 ms to read (``slow loader``),
# - the model has 17 MB of gradients, and a batch only 8 samples (``large model``),
# - rank 1 has eleven times as many samples as rank 0 (``slow rank``),
# - the model has 0.001 MB of gradients, and computes almost nothing (``tiny model``).
#
# With the slow loader and the slow rank, a sleep takes the place of a GPU's work.
#
# .. run::
#    :expect: (?s)slow loader +0 +(1[6-9]|[2-9]\d|\d{3,})\.\d.*slow rank +0 +\S+ +\S+ +\S+ +([3-9]|\d\d+)\.\d
#    :lines: 1 2
#    :mark: slow|large|tiny
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m docs.labs.where_time_goes > times.txt
#    head -n 11 times.txt
#    tail -n 5 times.txt
#
# In milliseconds, means over the faster half of the steps. Compare the columns of a row, not the
# rows, because the networks and batches differ too. ``loader`` to ``waiting`` add up to ``step``.
# The column ``no_sync`` is computing, measured again in steps that send nothing. It leaves out
# DDP's copies of the gradients into the bucket and back, which show in ``large model``.
#
# ``share`` is the part of the step in which the rank does not wait for its loader. Training
# frameworks print it as, for example, ``99.3% computing time`` (:doc:`coming_from`). But a high
# number says little, because the all-reduce counts as computing.

# %%
import re

import lab

log = lab.run(
    "OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m docs.labs.where_time_goes > times.txt",
    "head -n 11 times.txt",
    "tail -n 5 times.txt",
)
rows = re.findall(r"^(\w+(?: \w+)?) +([01]) +([\d. ]+?) +\d+% +[\d.]+$", log, re.MULTILINE)
PARTS = "loader", "computing", "communication", "waiting"
bars = [(name, rank, [float(one) for one in times.split()]) for name, rank, times in rows]
largest = {}
for name, rank, times in bars:
    largest.setdefault(max(zip(times, PARTS, strict=False))[1], []).append(f"{name} (rank {rank})")

figure, axes = lab.picture(
    "The share of each part in a step, for both ranks of the five trainings. The largest part is "
    + "; ".join(f"{part} for {', '.join(names)}" for part, names in largest.items()) + ".",
    height=3.6,
)
for place, (*_, times) in enumerate(bars):
    left, row = 0, place + place // 2 * 0.5
    for part, color in zip(times[:4], lab.COLORS, strict=True):
        width = 100 * part / sum(times[:4])
        axes.barh(row, width, 0.85, left, color=color)
        left += width
axes.set(
    yticks=[place + place // 2 * 0.5 for place in range(len(bars))], yticklabels=[f"{name}, rank {rank}" for name, rank, _ in bars],
    xlabel="% of the step", xlim=(0, 100),
)
axes.invert_yaxis()
patches = [axes.barh(0, 0, color=color) for color in lab.COLORS]
figure.legend(patches, PARTS, loc="outside upper right", ncols=4)

# %% [markdown]
# - **slow loader**: both ranks wait for their data. In no other row is ``share`` far below 90%.
# - **large model**: ``share`` is high, although much of the time is communication.
# - **slow rank**: the rank that waits is not the slow one. Look for the rank with the most
#   computing.
# - **tiny model**: the step sends almost nothing. The fixed costs of an all-reduce and of each call
#   from Python take the time, so a faster network or a smaller message would not help.
#
# So communication can be large for opposite reasons, which the column ``MB`` tells apart.

# %% [markdown]
# What a remedy gains
# -------------------
#
# The lab trains again with a remedy, right after each faulty training:
#
# .. run::
#    :expect: equal work
#    :lines: 3 3
#    :alone:
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m docs.labs.where_time_goes > times.txt
#    head -n 11 times.txt
#    tail -n 5 times.txt
#
# With either remedy for the large model, a rank sends once per 32 samples instead of four times,
# and the larger batch also computes faster. Both change the training, so read
# :doc:`batch_and_learning_rate` first.

# %% [markdown]
# From the symptom to the remedy
# ------------------------------
#
# .. list-table::
#    :header-rows: 1
#    :widths: 22 30 48
#
#    * - what is large
#      - what it means
#      - remedy
#    * - loader, on all ranks
#      - reading or decoding takes long
#      - ``DataLoader(..., num_workers=2)`` reads ahead while the model computes;
#        ``prefetch_factor``: batches ahead, per worker. On GPUs also ``pin_memory=True``. Or convert the
#        data once, to a file that is mapped into memory (:doc:`beyond_memory_mapped`)
#    * - loader, on one rank
#      - its disk or its share of the data is slower; the other ranks show it as waiting
#      - the same remedies, on the node of that rank
#    * - communication, many MB
#      - the model is large for the batch, or the link is slow
#      - a larger batch; several batches per update, with ``model.no_sync()`` for all but the last
#        (:doc:`5c_fast`); 16 bits in the messages,
#        with a hook (:doc:`beyond_comm_hooks`); averaging weights every few steps
#        (:doc:`beyond_local_sgd`); a faster link
#    * - communication, few MB
#      - latency and fixed costs
#      - a larger batch, or several per update
#    * - waiting, on all ranks but one
#      - the rank that does not wait is slow: more work, a busy or a throttled device
#      - give every rank equal work; group sequences of similar length (*bucketing*), so that all
#        ranks have long ones in the same step; replace the device
#    * - waiting, on a different rank from step to step
#      - the work varies from step to step
#      - group by length, too; or all-reduce less often, because ranks wait only there
#    * - computing
#      - this is what you want. For more samples/s, compute faster
#      - ``model.compile()``, 16 bits (:doc:`5c_fast`), more processes
#
# Apply one remedy and measure again, because another part may then be the largest.

# %% [markdown]
# In your script
# --------------
#
# To measure your own training, register the hook, read the clock before and after
# ``next(batches)``, and print the times of the loader, the step and the all-reduce on each rank.
# Two cautions:
#
# - **Overlap.** The lab puts all gradients into one :term:`bucket`, with ``bucket_cap_mb=1000``, so
#   the only all-reduce begins after the last gradient, and the parts add up. With several buckets
#   (:doc:`1a_speed`), remove the hook, and compare the step with the same step within
#   ``no_sync()``.
# - **GPUs.** A call on a GPU only enqueues work, and returns before it is done. Call
#   ``torch.accelerator.synchronize()`` before you read the clock, or record a trace with
#   ``torch.profiler``.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: where_the_time_goes
#    :next: :doc:`between_nodes`, which slows the link down
#    :also: torch.nn.parallel.DistributedDataParallel.no_sync, torch.nn.parallel.DistributedDataParallel.register_comm_hook, torch.utils.data.DataLoader, torch.profiler <torch.profiler>
#
#    You can now find the largest part of a step, and choose its remedy.
#
#    .. fold:: The all-reduce of a step takes 40 ms on rank 0, 12 ms on rank 1 and 31 ms on rank 2. What do you conclude?
#
#       Communication takes 12 ms. Rank 0 waits for 28 ms and rank 2 for 19 ms, so look at what rank
#       1 does before the all-reduce.
#
#    .. fold:: A log says ``99.3% computing time`` on all ranks, but two GPUs are hardly faster than one. Where do you look?
#
#       This number counts communication and waiting as computing. The step minus the same step
#       within ``no_sync()`` is about the two together, and the shortest all-reduce among the ranks
#       is the communication.
