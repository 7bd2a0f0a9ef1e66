# %% [markdown]
"""
What is DDP
===========
"""

# %% [markdown]
# **You will be able to** say what ``DistributedDataParallel`` does between two lines of your script,
# what it sends, how much of it, and why the result is the one that a single device would have had.
#
# **You need** the :doc:`0_intro`, and nothing of distributed training.
#
# The idea
# --------
#
# One device is too slow, so take several. Give each a copy of the model and a share of every batch.
# Each computes a loss and gradients on its own share. If each now took its step, the copies would
# drift apart. So before the step they **average their gradients**. Equal weights, equal gradients:
# equal weights again.
#
# That is *data parallelism*, and DDP is PyTorch's form of it. A few words are needed to talk about it:
#
# - A :term:`process` is a running program with memory of its own. There is one for each device, and all
#   run the same script. (They are processes, not threads: Python's threads would wait for each
#   other.)
# - The :term:`rank` is the number of a process, from 0; the :term:`world size` is how many there are.
# - The processes form a :term:`process group`. What they do together is a :term:`collective`: an
#   operation that *every* process of the group must call, or the others wait.
# - The collective that matters most is **all-reduce**: everybody brings a tensor, and everybody
#   gets the sum.
# - The :term:`backend` carries it out: NCCL between GPUs, :term:`gloo` between CPUs. All of this page
#   runs on CPUs.

# %% [markdown]
# Averaging by hand
# -----------------
#
# This is all of it. ``OurDDP`` stands in for ``DistributedDataParallel``. When it is made it sends the
# weights of rank 0 to all others, and after every ``backward()`` it averages the gradients:
#
# .. literalinclude:: ../theory/average_by_hand.py
#    :pyobject: OurDDP
#
# The script trains three models side by side: one with ``OurDDP``, one with the real DDP, each process
# with its half of the batch, and one that takes the whole batch alone. Before each of four steps it
# compares their weights; step 0 is right after the broadcast.
#
# .. run::
#    :expect: ^Step 3: weights differ by 0 between ranks, by 0 from DDP
#
#    {average_by_hand}
#
# Line by line:
#
# - Every process had drawn other weights. One :term:`broadcast` from rank 0 made them equal. Buffers,
#   such as the running means of a batch normalisation, travel too.
# - Between the ranks the difference is 0, and it stays 0. Nobody ever compares or corrects weights:
#   equal gradients are enough.
# - From the real DDP the difference is 0 as well, to the last bit. DDP divides each gradient by the
#   world size before it sums, ours afterwards; for two processes that makes no difference.
# - From one process with the whole batch there are a few units of the last decimal, because
#   floating-point sums depend on their order.
#
# Why the average?
# ----------------
#
# The loss is a mean over the samples of a batch: of the 16 that a rank has, say. The gradient of a
# mean is the mean of the gradients. Two ranks have the means over two halves, and *the mean of the
# two is the mean over all 32*: the gradient of the large batch.
#
# That holds if the shares are equal. The last two lines of the output show what happens if they are
# not: the mean of means weighs ranks, not samples. ``DistributedSampler`` makes the shares equal
# for you.
#
# It is the *average*, not the sum. With the sum the step would grow with the number of processes, as if
# somebody had turned up the learning rate.

# %% [markdown]
# Starting as soon as a gradient is there
# ---------------------------------------
#
# ``backward()`` goes through the layers from the last to the first. When it is at the first one, the
# gradient of the last has long been ready. There is no need to wait:
#
# .. lesson-diff:: average_with_hooks
#    :edit: start-when-ready
#    :confirmed: 224e28e9c601
#
#    A *hook* is a function that PyTorch calls at a certain moment, here as soon as a parameter has its
#    gradient. ``async_op=True`` starts the all-reduce and returns at once; ``work.wait()``
#    waits for it later, before the optimizer needs the result. In between, backward goes on.
#
#    All processes must start their all-reduces in the same order, for the first one of one rank is
#    matched with the first one of another. Since all run the same model, they do. (A model that takes
#    different paths on different ranks breaks this; DDP has ``find_unused_parameters`` for such.)

# %% [markdown]
# In which order they come
# ------------------------
#
# .. lesson-diff:: average_with_hooks
#    :edit: say-the-order
#    :confirmed: 9281fd2bee40
#
#    The layers are named 0 to 5, and the gradients arrive from 5 to 0. This, and not that "layers
#    are independent", is why communication and computation can overlap: *backward is a sequence,
#    and what it has finished it does not touch again.*
#
# .. run::
#    :expect: (?s)Gradients arrive: 5\..*Each step: 12 all-reduces, 25,344 bytes
#
#    {average_with_hooks}

# %% [markdown]
# One all-reduce for many gradients
# ---------------------------------
#
# Twelve small all-reduces cost twelve times the time that a message takes to get there at all. Put
# into larger pieces, the same bytes need fewer messages:
#
# .. lesson-diff:: average_in_buckets
#    :edit: fill-buckets
#    :confirmed: 81e55f048fe7
#
#    A :term:`bucket` takes gradients in the order in which backward delivers them, until it is
#    full. When the last of its gradients has come, all are copied into one piece of memory, and
#    that is all-reduced. Afterwards the gradients *are* views of that piece, so nothing is copied
#    back.
#
#    DDP does the same, with a first bucket of 1 MiB, so that something is under way early, and
#    further ones of 25 MiB (``bucket_cap_mb``). After the first iteration it rebuilds its buckets
#    in the order in which the gradients really came.
#
# .. run::
#    :expect: Each step: 3 all-reduces, 25,344 bytes
#
#    {average_in_buckets}

# %% [markdown]
# Where the time goes
# -------------------
#
# The four ways, with a model of 8 layers and 32 MiB of gradients, measured on the machine that built
# this page. "In 16" says that 16 all-reduces were under way for so many milliseconds; "after backward"
# is the time from the last gradient to the last average. Each column is a median of its own, so they
# do not add up exactly. Buckets hold 8 MiB here, in DDP too.
#
# .. run::
#    :expect: All four leave the same gradients
#    :lines: 1 1
#    :alone:
#
#    python docs/theory/timeline.py --json events.jsonl
#    cat events.jsonl

# %%
import json
import re

import lab

log = lab.run("python docs/theory/timeline.py --json events.jsonl", "cat events.jsonl")
events = [json.loads(line) for line in log.split("\n") if line.startswith("{")]
variants = list(dict.fromkeys(event["variant"] for event in events))

figure, axes = lab.picture(
    "For each of the four ways, when rank 0 was in forward, backward and all-reduce in one step. By "
    "hand, the all-reduces begin when backward has ended; in the other three they begin during it.",
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
# Above, the all-reduces begin when backward has ended; below, during it. What that saves depends on
# who does the work. Between GPUs, engines of their own carry the bytes, and backward hides nearly
# all of it. Here the two processes share two cores, and gloo adds the numbers up on the same cores.
# So "after backward" becomes shorter, but backward itself longer, and only the difference is won.

# %% [markdown]
# A ring
# ------
#
# How do you sum tensors that lie in four processes? If each sent everything to each, every process
# would send its whole tensor three times, and with more processes ever more. A *ring* does better.
# The tensor is cut into as many chunks as there are processes, and each process only ever talks to
# its neighbours. (``isend`` and ``irecv`` begin to send to one process or to receive from one, and
# ``wait()`` waits for it. A view is a part of the tensor, not a copy.)
#
# .. literalinclude:: ../theory/ring_all_reduce.py
#    :pyobject: ring_all_reduce
#
# Let every rank bring its own power of two, so that a sum tells whose numbers are in it:
#
# .. run::
#    :expect: Every rank holds 15 everywhere
#
#    python docs/theory/ring_all_reduce.py
#
# First chunks are *added* on their way around: the *reduce-scatter*. After three steps each rank
# holds one chunk that is complete: 15 = 1 + 2 + 4 + 8. Then the complete chunks are *copied* around
# once more: the *all-gather*.

# %%
log = lab.run("python docs/theory/ring_all_reduce.py")
rows = re.findall(r"^(at first|add \d|copy \d) +\| (.*)$", log, re.MULTILINE)

figure, axes = lab.picture(
    "What each of four ranks holds at first and after each of six steps: sums grow along the ring "
    "until each rank has one complete chunk, which is then copied to all.",
    height=2.2, rows=1, columns=len(rows),
)
for panel, (title, text) in zip(axes, rows, strict=True):
    held = [[int(number) for number in cell.split()] for cell in text.split("|")]
    for rank, numbers in enumerate(held):
        for chunk, number in enumerate(numbers):
            share = bin(number).count("1") / len(numbers)
            panel.add_patch(lab.plt.Rectangle((chunk, rank), 0.92, 0.92, color=lab.COLORS[0], alpha=share * 0.8))
            panel.annotate(str(number), (chunk + 0.46, rank + 0.5), ha="center", va="center", fontsize=9)
    panel.set(xlim=(0, len(held)), ylim=(len(held), 0), title=title, xticks=[], yticks=[], aspect="equal")
    panel.title.set_fontsize(10)
    panel.spines[:].set_visible(False)
axes[0].set(yticks=[rank + 0.46 for rank in range(len(held))])
axes[0].set(yticklabels=[f"rank {rank}" for rank in range(len(held))])
axes[0].tick_params(length=0)

# %% [markdown]
# How many bytes
# --------------
#
# Each of ``N`` processes sends ``2 (N − 1)`` chunks of ``1/N`` of the tensor. For a tensor of ``S``
# bytes that is
#
#    2 (N − 1) / N × S
#
# a process: ``S`` for two, nearly ``2 S`` for many, and *never more*, however many there are. The
# script has counted what it sent, with a larger tensor, and the count agrees. That is why data
# parallelism scales. (NCCL and gloo choose between rings, trees and other patterns; the amount is
# of this order for all good ones.)

# %%
counted = re.findall(r"([\d,]+) floats.*\n +each sent ([\d,]+) to ([\d,]+) bytes", log)
floats, least, most = (int(text.replace(",", "")) for text in counted[0])
size, world = 4 * floats, len(held)

figure, axes = lab.picture(
    f"Bytes that each process sends, as a multiple of the tensor: by the ring at most 2, all to all "
    f"N - 1. Counted with {world} processes: {most / size:.2f}."
)
counts = range(2, 17)
axes.plot(counts, [2 * (n - 1) / n for n in counts], label="ring: 2 (N − 1) / N")
axes.plot(counts, [n - 1 for n in counts], label="everything to everyone: N − 1")
axes.plot([world], [most / size], "o", color=lab.COLORS[2], label=f"counted: {most / size:.2f}")
axes.set(xlabel="number of processes N", ylabel="sent, × tensor", ylim=(0, 8))
axes.legend()

# %% [markdown]
# So in each step a process sends between one and two times the size of the gradients, whatever the
# size of the batch. A larger batch means more work for the same bytes; it is the first thing to try
# where DDP is not faster.
#
# What DDP is not
# ---------------
#
# - It averages **gradients**, nothing else. The loss that a rank prints is its own; your metrics are
#   too. :doc:`2_multigpu` reduces the loss. (Buffers, as in a batch normalisation, are not averaged
#   either: in training, each ``forward`` copies those of rank 0 to all.)
# - It does not join the **statistics of a batch**. A batch normalisation takes mean and variance over
#   the samples of its own process. On GPUs ``torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)``
#   puts layers in its place that take them over all processes.
# - It does not touch the **data**. That the ranks see different samples is the sampler's doing.
# - It does not save **memory**. Every process holds the whole model, its gradients and the state of
#   its optimizer. (The older ``DataParallel`` also gathers on one GPU, which then runs out of
#   memory; DDP has no such main GPU.)
# - It does not start **processes**. ``mp.spawn`` does, in :doc:`2_multigpu`, and ``torchrun`` in
#   :doc:`3_fault_tolerance`.
#
# The whole script
# ----------------
#
# .. lesson-script:: average_in_buckets
