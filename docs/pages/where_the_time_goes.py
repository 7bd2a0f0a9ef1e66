# %% [markdown]
"""
Where the time goes
===================
"""

# %% [markdown]
# **You will be able to** measure the four parts of a training step on each rank, and to choose a
# remedy by the part that is too large.
#
# **You need** the script of :doc:`4_multinode`.
#
# A run is slower than you hoped. What do you change? More workers for the data help one run and do
# nothing for another. So measure first.

# %% [markdown]
# Four parts of a step
# --------------------
#
# With DDP, a step of a rank has four parts:
#
# Loader
#    The rank waits for its next batch.
#
# Computing
#    Forward, backward and the optimizer's step.
#
# Communication
#    The all-reduce of the gradients, from the moment at which *all* ranks have come.
#
# Waiting
#    In the same all-reduce, the time until the last rank comes.
#
# A rank cannot tell the last two apart, because both pass inside one call. But all ranks together
# can. **The last rank to come does not wait. So the shortest duration among the ranks is
# communication, and what a rank has beyond it is waiting.**
#
# To time the all-reduces of DDP, register a communication hook. This one does what DDP does without
# a hook, and notes the duration:
#
# .. literalinclude:: ../labs/where_time_goes.py
#    :pyobject: timed_all_reduce
#
# Computing is what remains of the step. It can also be measured directly: within
# ``model.no_sync()`` DDP sends nothing, so a step has no communication and no waiting. The lab does
# both, in turns. (In such steps each rank trains its own model. Do this in a copy of your run, and
# save nothing.)

# %% [markdown]
# Five trainings
# --------------
#
# The lab trains a small network on two processes. It does so five times: healthy, and with one fault
# each. The networks and batches differ, too, so that each fault shows: compare the columns of a row,
# not the rows. The fault is that
#
# - a sample takes 0.25 ms to read (``slow loader``),
# - the model has 17 MB of gradients, and a batch only 8 samples (``large model``),
# - rank 1 has eleven times as many samples as rank 0 (``slow rank``),
# - the model has 0.001 MB of gradients, and computes next to nothing (``tiny model``).
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
# The unit is milliseconds per step. The first four columns are the parts, and they add up to the
# fifth. ``no_sync`` measures computing again, in steps that send nothing. It is smaller where gloo
# needs the cores for sending, and it differs by chance where other programs ran beside the lab.
#
# ``share`` is the number that RETURNN prints at the end of each epoch, such as ``99.3% computing
# time``. Below 90% or so, its `documentation
# <https://returnn.readthedocs.io/en/latest/advanced/multi_gpu.html>`__ says, you wasted time
# elsewhere, for example in loading the data. The log of :doc:`5a_exact` has this number too. But if
# it is high, you know little, because the all-reduce counts as computing.

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
# - **slow loader**: both ranks wait for their data. This is the only fault that ``share`` shows.
# - **large model**: ``share`` is high, although a large part of the time is communication. Every
#   step sends 17 MB, and computes only 8 samples.
# - **slow rank**: rank 0 waits, and rank 1 does not. The rank that waits is not the slow one. Look
#   for the rank with the most computing.
# - **tiny model**: the step is the shortest, and almost nothing is sent. What takes the time is the
#   fixed cost of an all-reduce and of each call from Python. A faster network or a smaller message
#   would not help.
#
# So two trainings have a large part of communication, for opposite reasons. ``MB`` tells them apart.

# %% [markdown]
# What a remedy gains
# -------------------
#
# For each fault, the lab also trains with a remedy, right after the fault:
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
# Accumulating four batches sends once where the faulty training sends four times. A batch four times
# as large does too, and it also computes faster, since larger matrix products use the processor
# better. Both change the training: read :doc:`batch_and_learning_rate` before. (In ``slow loader`` and ``slow
# rank`` the lab sleeps in place of a device, 0.15 and 0.1 ms per sample. So these two rows depend
# little on how many cores are free.)

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
#      - reading or decoding is slower than training
#      - ``DataLoader(..., num_workers=2)`` reads ahead while the model computes;
#        ``prefetch_factor`` sets how many batches. On GPUs also ``pin_memory=True``. Or convert the
#        data once, to a file that is mapped into memory
#    * - loader, on one rank
#      - its disk or its share of the data is slower; the other ranks show it as waiting
#      - the same remedies, on the node of that rank
#    * - communication, many MB
#      - the model is large for the batch, or the link is slow
#      - a larger batch; several batches per update, with ``model.no_sync()`` for all but the last
#        (:doc:`5c_fast`); 16 bits in the messages,
#        ``model.register_comm_hook(None, default_hooks.fp16_compress_hook)``; averaging weights
#        every so many steps (local SGD); a faster link
#    * - communication, few MB
#      - latency and fixed costs
#      - a larger batch, or several per update
#    * - waiting, on all ranks but one
#      - that one is slow: more work, a busy or a throttled device
#      - give every rank equal work; group sequences of like length (*bucketing*), so that all ranks
#        have long ones in the same step; replace the device
#    * - waiting, on another rank in each step
#      - the work varies from step to step
#      - bucketing again; or fewer all-reduces, since ranks wait only there
#    * - computing
#      - this is what you want. For more samples/s, compute faster
#      - ``model.compile()``, 16 bits (:doc:`5c_fast`), more processes
#
# Apply one remedy, and measure again. The next part becomes the largest.

# %% [markdown]
# In your script
# --------------
#
# Three changes measure your own training: read the clock before and after ``next(batches)``,
# register the hook, and print the three times of each rank for some step in the middle. Two
# cautions:
#
# - **Overlap.** The lab puts all gradients into one :term:`bucket`, with ``bucket_cap_mb=1000``. So
#   the only all-reduce begins when ``backward()`` has ended, and the parts add up. With several
#   buckets, ``backward()`` hides a part of the communication (:doc:`1a_speed`). Then the step is
#   shorter than the sum of its parts, and what counts is the step minus the same step within
#   ``no_sync()``.
# - **GPUs.** There a call only enqueues work, and a clock in Python measures nothing. Call
#   ``torch.accelerator.synchronize()`` before you read it, or record a trace with ``torch.profiler``.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: where_the_time_goes
#    :next: :doc:`between_nodes`, which slows the link down
#    :also: torch.nn.parallel.DistributedDataParallel.no_sync, torch.nn.parallel.DistributedDataParallel.register_comm_hook, torch.utils.data.DataLoader, torch.profiler <torch.profiler>
#
#    You can now tell loading, computing, communication and waiting apart, and choose a remedy for
#    the largest.
#
#    .. fold:: The all-reduce of a step takes 40 ms on rank 0, 12 ms on rank 1 and 31 ms on rank 2. What do you conclude?
#
#       Communication takes 12 ms. Rank 0 waits for 28 ms and rank 2 for 19 ms. Both wait for rank 1,
#       so look at what rank 1 does before the all-reduce.
#
#    .. fold:: RETURNN prints ``99.3% computing time`` on all ranks, but two GPUs are hardly faster than one. Where do you look?
#
#       The data are fast enough. Communication and waiting count as computing in this number.
#       Compare a step with the same step within ``no_sync()``: the difference is both. Then the
#       shortest all-reduce among the ranks says how much of it is communication.
#
#    .. fold:: With ``num_workers=2`` the loader's part vanishes, and the step becomes only a little shorter. Why?
#
#       Either the loader's part was small, or another part has grown. The workers are processes,
#       and need cores. If all cores are busy, they slow down the computation. Compare the part
#       "computing" before and after.
