# %% [markdown]
"""
What is DDP
===========
"""

# %% [markdown]
# **You will be able to** say what ``DistributedDataParallel`` (DDP) does during a training step,
# how many bytes it sends, and why the result is the same as on one device.
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
# Where the time goes
# -------------------
#
# ``timeline.py`` measures the three scripts and DDP with a larger model: 8 layers with 32 MiB of
# gradients, in buckets of 8 MiB. It measured this on the machine that built this page:
#
# .. run::
#    :expect: All four leave the same gradients
#    :lines: 1 1
#    :alone:
#
#    python docs/theory/timeline.py --json events.jsonl
#    cat events.jsonl
#
# The column "all-reduces" has their time in all and their number. "After backward" is the time from
# the last gradient to the last average. Each number is the median of several steps, so forward,
# backward and after backward add up to the step only roughly.

# %%
import json
import re

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
# By hand, the all-reduces begin when ``backward()`` has ended. In the other three they begin during
# it. How much time that saves depends on what else the hardware has to do. Between GPUs, NCCL's
# kernels occupy a few of the GPU's multiprocessors and leave the rest to ``backward()``, so
# ``backward()`` hides most of the time that sending takes. Here two processes share a CPU, and gloo
# adds numbers on the same cores that compute gradients. So ``backward()`` becomes slower while it
# sends, and a step gains less. Nor do buckets gain anything here: each of these gradients is large,
# so latency is a small part of its time. The figure shows *when* the all-reduces run, not how much
# time a GPU would save.

# %% [markdown]
# A ring
# ------
#
# How can four processes sum their tensors? If each sends its whole tensor to each of the others, it
# sends three times the size of the tensor. With more processes it sends even more. A *ring*, which
# gloo and NCCL use, sends less. Each process cuts its tensor into as many chunks as there are
# processes, sends only to its right neighbour and receives only from its left one.
#
# .. literalinclude:: ../theory/ring_all_reduce.py
#    :pyobject: ring_all_reduce
#
# Take rank 0. In round 0 it sends chunk 0 to rank 1, and receives chunk 3 from rank 3, which it
# adds to its own chunk 3. In round 1 it sends that sum on to rank 1.
#
# ``isend`` and ``irecv`` start to send to one process and to receive from one; ``wait()`` waits
# until that is done. To see whose numbers are in a sum, rank 0 fills its tensor with 1, rank 1 with
# 2, rank 2 with 4 and rank 3 with 8:
#
# .. run::
#    :expect: Every rank holds 15 everywhere
#    :show: 8 0
#
#    python docs/theory/ring_all_reduce.py
#
# Between two bars of the output is a rank, and each number is one of its chunks. In the first three
# rounds, each process *adds* the chunk it receives to its own. This half is called
# *reduce-scatter*. After it, each rank holds one complete chunk: 15 = 1 + 2 + 4 + 8. In the last
# three rounds, the processes *copy* the complete chunks around the ring. This half is the
# *all-gather*.

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
# .. play:: ring
#
#    A row is a rank, a column is one of its chunks, and the number is the sum that it holds.
#
# How many bytes
# --------------
#
# Each of *N* processes sends 2 (*N* − 1) chunks. A chunk is 1/*N* of the tensor. For a tensor of
# *S* bytes, that makes
#
#    2 (*N* − 1) / *N* × *S*
#
# bytes per process: *S* for two processes, and less than 2 *S* for any number. The script counts
# the bytes that it sends. For 400,000 floats the count is exact; the other two tensors cannot be
# cut into equal chunks:
#
# .. run::
#    :expect: Every rank holds 15 everywhere
#    :show: 0 6
#    :mark: each sent
#
#    python docs/theory/ring_all_reduce.py

# %%
counted = re.findall(r"([\d,]+) floats.*\n +each sent ([\d,]+) to ([\d,]+) bytes", log)
floats, least, most = (int(text.replace(",", "")) for text in counted[0])
size, world = 4 * floats, len(held)

figure, axes = lab.picture(
    f"What each process sends, as a multiple of the tensor's size: at most 2 in a ring, N − 1 if it "
    f"sends everything to everyone. Counted in a ring of {world} processes: {most / size:.2f}."
)
counts = range(2, 17)
axes.plot(counts, [2 * (n - 1) / n for n in counts], label="ring: 2 (N − 1) / N")
axes.plot(counts, [n - 1 for n in counts], label="everything to everyone: N − 1")
axes.plot([world], [most / size], "o", color=lab.COLORS[2], label=f"counted: {most / size:.2f}")
axes.set(xlabel="number of processes N", ylabel="sent, × tensor", ylim=(0, 8))
axes.legend()

# %% [markdown]
# So in each training step a process sends one to two times the size of the gradients, whatever the
# batch size. A larger batch is more computation for the same bytes. If DDP is not faster than one
# device, try that first. It also changes the training: :doc:`batch_and_learning_rate` says how.
#
# The bytes are not all. The ring has 2 (*N* − 1) rounds, one after the other, and each costs the
# latency of a message. With thousands of processes latency dominates. For this reason NCCL also
# uses trees, in which the number of rounds grows with the logarithm of *N*.
#
# Predicting the time
# -------------------
#
# How long do the all-reduces take on your hardware, and how much of that does ``backward()`` hide?
# ``step_time.py`` predicts it. A round of the ring takes the latency, plus the bytes of a chunk
# divided by the bandwidth. So an all-reduce of a bucket of *n* bytes takes
#
#    2 (*N* − 1) × latency + 2 (*N* − 1) / *N* × *n* / bandwidth
#
# This is the *alpha-beta model* of `Thakur, Rabenseifner and Gropp (2005)
# <https://doi.org/10.1177/1094342005051521>`__. The script also assumes that ``backward()``
# computes gradients at a constant rate, that all-reduces run one after the other, and that they do
# not slow ``backward()`` down. The comments of the script say where the times of ``backward()``
# come from.
#
# .. run::
#    :expect: (?s)gpt-micro .* 24\.7 +24\.7\n.*ResNet-50 .* 120\.0 +176\.7 +265\.9\n.* 60\.0 +713\.3 +770\.2
#
#    python docs/theory/step_time.py
#
# For ResNet-50, overlap saves 89 of 266 ms. GPT-2 has five times as many gradients, and a shorter
# ``backward()``, so most of its time is sending: it needs more bandwidth. ``gpt-micro`` fits into
# one bucket, which is full only when ``backward()`` ends, so nothing overlaps.

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
#
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
#    :next: :doc:`2_multigpu`, which uses DDP in a training script
#    :also: torch.distributed.broadcast, torch.nn.parallel.DistributedDataParallel, torch.distributed.isend, torch.distributed.irecv, torch.Tensor.register_post_accumulate_grad_hook
#
#    You can now say what DDP does. It broadcasts the weights once, averages the gradients in
#    buckets during ``backward()``, and sends less than twice their size per step.
#
#    .. fold:: The ranks never exchange weights after the start. Why do the weights stay equal?
#
#       They start equal, because the constructor broadcasts those of rank 0. In each step every
#       rank has the same averaged gradients and the same state of its optimizer. The same
#       computation on the same numbers gives the same weights.
#
#    .. fold:: The gradients of a model have 100 MB. What does each of 8 processes send per step, and each of 800?
#
#       A ring sends 2 (*N* − 1) / *N* times 100 MB: 175 MB with 8 processes and 199.75 MB with
#       800. The bytes hardly grow. The rounds do, from 14 to 1,598, and each of them costs the
#       latency of a message.
#
#    .. fold:: A model is a single large layer. How much do hooks and buckets gain?
#
#       Almost nothing. The only gradients, of its weight and its bias, arrive when ``backward()``
#       ends, so nothing is left to overlap with. Overlap needs many layers: the gradients of the
#       later ones travel while those of the earlier ones are computed.
