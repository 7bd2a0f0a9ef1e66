# %% [markdown]
"""
What DDP costs
==============
"""

# %% [markdown]
# **You will be able to** say how many bytes DDP sends per step, how long that takes on your
# network, and how much of that time ``backward()`` hides.
#
# **You need** the three scripts of :doc:`1_theory`.

# %% [markdown]
# Where the time goes
# -------------------
#
# ``timeline.py`` runs DDP, and the three scripts of :doc:`1_theory`, with a larger model: 8 layers,
# 32 MiB of gradients, buckets of 8 MiB.
#
# .. run::
#    :expect: All four leave the same gradients
#    :lines: 1 1
#    :alone:
#
#    python docs/theory/timeline.py --json events.jsonl
#    cat events.jsonl
#
# The column "all-reduces" shows for how long any all-reduce was under way, and how many there were.
# "After backward" is the time from the last gradient to the last average.

# %%
import json

import lab

log = lab.run("python docs/theory/timeline.py --json events.jsonl", "cat events.jsonl")
events = [json.loads(line) for line in log.split("\n") if line.startswith("{")]
variants = list(dict.fromkeys(event["variant"] for event in events))

figure, axes = lab.picture(
    "One step of rank 0, four times: the three scripts and DDP. By hand, the all-reduces begin when "
    "backward has ended; in the other three they begin during it.",
    height=3.6, rows=4, columns=1, sharex=True,
)
colors = dict(zip(("forward", "backward", "all_reduce"), lab.COLORS, strict=False))
for panel, variant in zip(axes, variants, strict=True):
    for event in events:
        if event["variant"] == variant and event["rank"] == 0 and event["kind"] in colors:
            place = event["kind"] == "all_reduce"
            width = event["end"] - event["start"]
            color = colors[event["kind"]]
            panel.barh(place, width, 0.7, event["start"], color=color, alpha=0.55 if place else 1)
    panel.set(yticks=[0, 1], yticklabels=["compute", "send"], title=variant)
    panel.title.set(fontsize=10, ha="left", x=0)
    panel.invert_yaxis()
axes[-1].set(xlabel="milliseconds since the step began, on rank 0")
patches = [axes[0].barh(0, 0, color=color) for color in colors.values()]
figure.legend(patches, [kind.replace("_", "-") for kind in colors], loc="outside upper right", ncols=3)

# %% [markdown]
# The figure shows *when* the all-reduces run, not how much time overlap saves on GPUs. Between
# GPUs, NCCL's kernels occupy a few multiprocessors and leave the rest to ``backward()``, so both
# run at the same time. Here gloo adds numbers on the same cores that compute gradients, so a step
# gains less. Buckets do not help here, because the gradients are large and the latency hardly
# counts.

# %% [markdown]
# A ring
# ------
#
# In the simplest all-reduce, each process sends its whole tensor to all others and adds what it
# receives: with four processes, it sends three times the size of the tensor. A *ring* sends less.
# Gloo uses it; NCCL has other ways, too. Each process cuts its tensor into as many chunks as there
# are processes, sends only to its right neighbour and receives only from its left neighbour.
#
# .. literalinclude:: ../theory/ring_all_reduce.py
#    :pyobject: ring_all_reduce
#
# ``isend`` starts to send to one process, and ``irecv`` to receive from one. The ranks fill their
# tensors with 1, 2, 4 and 8, so each sum shows whose numbers are in it:
#
# .. run::
#    :expect: Every rank holds 15 everywhere
#
#    python docs/theory/ring_all_reduce.py
#
# The bars separate the ranks, and each number is one chunk. In the first three rounds, the
# *reduce-scatter*, each process *adds* the chunk it receives to its own. Then each rank holds one
# complete chunk: 15 = 1 + 2 + 4 + 8. In the last three rounds, the *all-gather*, the processes
# *copy* the complete chunks around the ring.
#
# .. play:: ring
#
#    A row is a rank, a column is a chunk, and the number is the sum that the rank holds there.
#
# How many bytes
# --------------
#
# Each of *N* processes sends 2 (*N* − 1) chunks, and each chunk is 1/*N* of the tensor. For a
# tensor of *S* bytes, a process sends
#
#    2 (*N* − 1) / *N* × *S*
#
# bytes: *S* with two processes, and less than 2 *S* with any number. The last lines of the output
# above are the bytes that the script counted. For 400,000 floats they agree with the formula. With
# 400,001 or 3 floats, chunks differ by a float.
#
# So per training step a process sends one to two times the size of the gradients,
# whatever the batch size. If DDP is not faster than one device, first try a larger batch, which
# means more computation for the same bytes. A larger batch also changes the training: see
# :doc:`batch_and_learning_rate`.
#
# Predicting the time
# -------------------
#
# ``step_time.py`` predicts how long the all-reduces take, and how much of that ``backward()``
# hides. Its options, which ``--help`` lists, describe your network. The ring has 2 (*N* − 1)
# rounds. Each takes the latency of a message, plus the bytes of a chunk divided by the bandwidth.
# So an all-reduce of a bucket of *n* bytes takes
#
#    2 (*N* − 1) × latency + 2 (*N* − 1) / *N* × *n* / bandwidth
#
# This is the *alpha-beta model*, as in
# `Thakur, Rabenseifner and Gropp (2005) <https://doi.org/10.1177/1094342005051521>`__. The script
# assumes that all buckets, the first too, hold 25 MiB, that all-reduces run one after the other,
# and that meanwhile ``backward()`` computes gradients at a constant rate. Its comments say where
# the times of ``backward()`` come from. (DDP's authors report that its speed grows almost linearly
# up to 256 GPUs: `Li et al. 2020 <https://arxiv.org/abs/2006.15704>`__.)
#
# .. run::
#    :expect: (?s)gpt-micro .* 24\.7 +24\.7\n.*ResNet-50 .* 120\.0 +176\.7 +265\.9\n.* 60\.0 +713\.3 +770\.2
#
#    python docs/theory/step_time.py
#
# "Overlapped" is the time from the start of ``backward()`` to the last average. In "not
# overlapped", ``backward()`` ends before the first all-reduce begins. For ResNet-50, overlap saves
# 89 of 266 ms. GPT-2 has five times as many gradients and a shorter ``backward()``, so it spends
# most of its time sending. The gradients of ``gpt-micro``, a small GPT, fit into one bucket of 25
# MiB, which is complete only when ``backward()`` ends, so nothing overlaps.

# %%
from docs.theory import step_time

model = step_time.MODELS[1]
setting = 25 * 2**20, 8, 50e-6, 1.25e9
overlapped, one_by_one = step_time.step(model, *setting)
figure, axes = lab.picture(
    f"The last of four all-reduces of ResNet-50 ends after {overlapped * 1e3:.1f} ms if they begin during "
    f"backward, and after {one_by_one * 1e3:.1f} ms if they begin after it.",
    height=1.9,
)
later = model.backward
for _, start, end in step_time.timeline(model, *setting):
    for row, begin in ((1, start), (3, later)):
        axes.barh(row, (end - start) * 1e3, 0.9, begin * 1e3, color=lab.COLORS[1], edgecolor="white")
    later += end - start
axes.barh([0, 2], model.backward * 1e3, 0.9, color=lab.COLORS[0])
axes.set(yticks=range(4), yticklabels=["backward", "with overlap", "backward", "without"], xlabel="milliseconds")
axes.invert_yaxis()

# %% [markdown]
# .. play:: overlap
#
#    ``backward()`` is blue. Below it are the all-reduces of its buckets, in orange.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 1a_speed
#    :next: :doc:`2_multigpu`, which uses DDP in a script
#    :also: torch.distributed.isend, torch.distributed.irecv, torch.distributed.all_reduce
#
#    You can now predict what DDP costs per step: less than twice the bytes of the gradients, and 2
#    (*N* − 1) latencies per bucket. ``backward()`` hides a part of it.
#
#    .. fold:: The gradients of a model have 100 MB. What does each of 8 processes send per step, and each of 800?
#
#       In a ring it sends 2 (*N* − 1) / *N* times 100 MB: 175 MB with 8 processes and 199.75 MB
#       with 800. The bytes hardly grow, but the rounds per bucket grow from 14 to 1,598.
#
#    .. fold:: You enlarge the batch fourfold. Which bars of the last figure grow?
#
#       Only ``backward()``, fourfold. The gradients have as many bytes as before, so the
#       all-reduces take no longer, and ``backward()`` hides more of them.
