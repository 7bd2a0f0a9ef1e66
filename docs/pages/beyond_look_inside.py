# %% [markdown]
"""
Profiler and flight recorder: looking inside a step
===================================================
"""

# %% [markdown]
# **You will be able to** record what every rank does, see which rank the others wait for, and name
# the call in which a run hangs.
#
# **You need** the script of :doc:`4_multinode`.
#
# If a run is slow, its samples per second do not say whether a rank or the network is slow. All
# ranks need the same time, because a step ends only when the slowest rank is done.

# %% [markdown]
# Recording one epoch
# -------------------
#
# .. lesson-diff:: look_inside
#    :edit: record-one-epoch
#    :confirmed: 9cbf78e01d50
#
#    ``torch.profiler`` records every operation of this process, with its start and duration. Each
#    rank exports its own file, a *trace*.
#
#    Recording slows training down, so ``schedule`` selects one epoch. Here ``profiler.step()``
#    marks the end of an epoch. The first epoch is the ``warmup``, whose records the profiler drops.
#    The second is ``active``: after it, the profiler calls ``on_trace_ready``. With ``repeat=1``
#    the profiler then stays off.
#
#    ``record_shapes`` also stores the shape of each input, so that you can tell an all-reduce of
#    gradients from one of the loss.
#
# .. run::
#    :expect: (?s)(traced 33 all-reduces.*){2}
#    :mark: traced
#
#    python -m tools.series run --probe look_inside 3 3
#
# Each trace has 33 all-reduces: 32 for the steps, and one for the sum of the losses.
# ``KINETO_LOG_LEVEL=6`` silences the profiler's own ``USDT`` lines. The training itself does not
# change:
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 1
#
#    KINETO_LOG_LEVEL=6 torchrun --standalone --nproc_per_node=2 -m beyond.look_inside 10 10 | tail -n 1
#    torchrun --standalone --nproc_per_node=2 multinode.py 10 10 | tail -n 1
#    python docs/labs/same.py look_inside.pt multinode.pt

# %% [markdown]
# Who waits for whom
# ------------------
#
# To have something to find, make rank 1 sleep for 10 ms before each ``backward()``:
#
# .. run::
#    :alone:
#    :expect: rank 0 \| 33 all-reduces: 32 of \[\[21\]\] \+ 1 of \[\[2\]\] \| \d+ ms, \d\d\d+ of them waiting
#    :show: 0 1
#    :mark: waiting
#
#    sed 's/loss.backward()/time.sleep(0.01 * dist.get_rank()); loss.backward()/' beyond/look_inside.py > beyond/slow_rank.py
#    KINETO_LOG_LEVEL=6 torchrun --standalone --nproc_per_node=2 -m beyond.slow_rank 2 2
#    python docs/labs/traces.py rank0.trace.json rank1.trace.json
#
# *Waiting* is the time until the last rank has begun the same all-reduce: about 10 ms in each of 32
# steps. An all-reduce cannot end before that, so both ranks leave it at about the same time. **The
# rank that spends the most time in all-reduces is not the slow one. It is the one that waits.**

# %%
import re

import lab

log = lab.run(
    "sed 's/loss.backward()/time.sleep(0.01 * dist.get_rank()); loss.backward()/' beyond/look_inside.py > beyond/slow_rank.py",
    "KINETO_LOG_LEVEL=6 torchrun --standalone --nproc_per_node=2 -m beyond.slow_rank 2 2",
    "python docs/labs/traces.py rank0.trace.json rank1.trace.json",
)
pattern = r"step (\d+) \| rank (\d) \| forward +(\S+) \| all-reduce +(\S+) to +(\S+)"
rows = [list(map(float, row)) for row in re.findall(pattern, log)]
spent = dict(re.findall(r"(rank \d) \| 33 .* \| (\d+) ms, \d+ of them", log))

figure, axes = lab.picture(
    "Five steps of both ranks, from their traces. Rank 0 is ready early in each step and waits in "
    "a long all-reduce until rank 1 comes; rank 1's is short. In the whole epoch, rank 0 is in "
    f"all-reduces for {spent['rank 0']} ms, and rank 1 for {spent['rank 1']} ms.",
    height=1.9,
)
for _, rank, begin, start, end in rows:
    axes.barh(rank, start - begin, 0.7, begin, color=lab.COLORS[0])
    axes.barh(rank, end - start, 0.7, start, color=lab.COLORS[1])
axes.set(yticks=[0, 1], yticklabels=["rank 0", "rank 1"], xlabel="milliseconds")
axes.invert_yaxis()
patches = [axes.barh(0, 0, color=color) for color in lab.COLORS[:2]]
figure.legend(patches, ["forward to all-reduce", "in the all-reduce"], loc="outside upper right", ncols=2)

# %% [markdown]
# To see everything in a trace, open the file at https://ui.perfetto.dev.
#
# - **Several machines** have several clocks. Align the traces at the *end* of an all-reduce,
#   because all ranks leave it at about the same time.
# - **On GPUs** the trace also has the kernels. Look at those of NCCL, because the call on the CPU
#   only enqueues them.
# - **Many ranks**: `Holistic Trace Analysis
#   <https://github.com/facebookresearch/HolisticTraceAnalysis>`__ reads all traces of a run and
#   sums up who computed, communicated or waited.

# %% [markdown]
# A hang: the flight recorder
# ---------------------------
#
# A trace is written when a traced epoch ends, so an epoch that hangs writes none. For hangs, torch has
# the *flight recorder*: each rank keeps its latest collectives in memory, with number, name, shape
# and lines of code. torch 2.13.0 records by default.
#
# In this lab only rank 0 sums its loss, a common mistake, so the ranks then call different
# collectives. After a timeout of five seconds, the lab saves what was recorded:
#
# .. run::
#    :expect: (?s)#3 \| all ranks \| gloo:all_reduce \[\[21\]\]\n#4 \| rank 0 \| gloo:all_reduce \[\[2\]\].*#4 \| rank 1 \| gloo:broadcast \[\[20\]\]
#    :mark: #4
#
#    torchrun --standalone --nproc_per_node=2 docs/labs/mismatch.py
#    python docs/labs/flights.py flight_0 flight_1
#
# The records say that call number 4 is an all-reduce of two numbers on rank 0, and a broadcast on
# rank 1. The lab saved them like this:
#
# .. literalinclude:: ../labs/mismatch.py
#    :pyobject: main
#
# ``_dump_fr_trace`` is not public, and may change. Over NCCL you need no code: when a collective
# times out, each rank writes ``~/.cache/torch/comm_lib_trace_rank_N`` (`tutorial
# <https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html>`__). PyTorch's
# ``torchfrtrace`` compares such files. In torch 2.13.0 it fails on those of gloo, so this page uses
# ``flights.py``.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_look_inside
#    :next: :doc:`symptoms`, which lists hangs and their causes
#
#    You can now record every rank, find the one that the others wait for, and name the call in
#    which a run hangs.
#
#    .. fold:: Rank 3 of 8 spends 2 ms in all-reduces per step, and each other rank 40 ms. Which rank do you look at?
#
#       Rank 3. The others wait for it, and once it comes, the all-reduce takes 2 ms.
#
#    .. fold:: All ranks spend 40 ms in all-reduces, and they begin them at the same time. What now?
#
#       No rank waits, so the cause is the network or the number of messages. Compare 40 ms with the
#       formula of :doc:`1a_speed`, and read which path NCCL uses: "What NCCL says" in
#       :doc:`5d_gpus`.
#
#    .. fold:: The last recorded call is number 812 on rank 0 and number 811 on rank 1. What do you know?
#
#       Rank 1 has not come to call 812: it still computes, or waits for something else.
#       Look at its stack with ``py-spy``: "A hang?" in :doc:`symptoms`.
