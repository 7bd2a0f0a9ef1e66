# %% [markdown]
"""
Between nodes
=============
"""

# %% [markdown]
# **You will be able to** predict from the bandwidth and the latency of a link whether a second node
# makes training faster, and say what to change if it does not.
#
# **You need** :doc:`4_multinode`, and the formula of :doc:`1a_speed`.
#
# A second node doubles the samples of a step, but each step also sends the gradients over the link
# between the nodes. If this link is slow, two nodes train slower than one.

# %% [markdown]
# One node against two
# --------------------
#
# ``links.py`` compares one node with two, over links of several speeds. Its nodes are those of the
# cluster in a box, a tool of this project (:doc:`launchers`), which limits the bandwidth in each
# direction, and delays every packet by the latency. The cluster needs Linux and root. Elsewhere
# ``links.py`` prints an earlier measurement, and says so.
#
# The lab runs the training step of ``multinode.py`` with one process per node and a larger model,
# because ``Linear(20, 1)`` has only 84 bytes of gradients:
#
# .. run::
#    :expect: (?s)one node +\| +32 \|[^|]+\| +[\d,]*\d{3} \|.*\n10 Mbit/s,   0 ms \| +64 \|[^|]+\| +\d\d \|
#    :lines: 1 2
#    :mark: one node
#    :alone:
#    :timeout: 600
#
#    python -m docs.labs.links tools/bench/results/links.txt > links.txt
#    grep -B 99 "^10 Mbit/s,  10 ms" links.txt
#    grep -A 99 larger links.txt

# %%
import re

import lab

log = lab.run(
    "python -m docs.labs.links tools/bench/results/links.txt > links.txt",
    'grep -B 99 "^10 Mbit/s,  10 ms" links.txt',
    "grep -A 99 larger links.txt",
)


def number(text):
    return float(text.replace(",", ""))


alone = number(re.search(r"one node +\| +32 \|[^|]+\| +([\d,]+)", log)[1])
form = r"^(no limit|\d+ \wbit/s), +(\d+) ms \| +64 \|[^|]+\| +([\d,]+) \| +([\d,]+)"
found = [(rate, int(late), number(did), number(should)) for rate, late, did, should in re.findall(form, log, re.MULTILINE)]
rates = list(dict.fromkeys(rate for rate, *_ in found))[::-1]
slowest = min(did for _, _, did, _ in found)

figure, axes = lab.picture(
    f"Samples per second of two nodes over the bandwidth of their link, for three latencies. One node "
    f"trains {alone:,.0f} samples per second, and two over the slowest link {slowest:,.0f}."
)
for late, color in zip((0, 1, 10), lab.COLORS, strict=False):
    of_it = {rate: (did, should) for rate, one, did, should in found if one == late}
    axes.plot(rates, [of_it[rate][0] for rate in rates], "o-", color=color, label=f"measured, {late} ms")
    axes.plot(rates, [of_it[rate][1] for rate in rates], "--", color=color, alpha=0.6, label=f"predicted, {late} ms")
axes.axhline(alone, color="gray", linewidth=1, label="one node")
axes.set(ylabel="samples/s", yscale="log")
axes.set_xticks(range(len(rates)), [rate.replace(" ", "\n") for rate in rates])
figure.legend(loc="outside upper center", ncols=3, fontsize=7)

# %% [markdown]
# **Bandwidth.** Over 10 Mbit/s a step takes about a second, nearly all of it for sending. With ten
# times the bandwidth it takes 9 to 18 % of that.
#
# **Latency.** A latency of 10 ms makes even the unlimited link slow. It hardly matters at 10
# Mbit/s.

# %% [markdown]
# The prediction
# --------------
#
# ``predicted`` is a step of both nodes without sending, plus the all-reduce of
# :doc:`1a_speed`:
#
#    2 (*N* − 1) × latency + 2 (*N* − 1) / *N* × bytes / bandwidth
#
# For *N* = 2 the second part is bytes / bandwidth: 1,005,484 bytes over 100 Mbit/s, which is 12.5
# MB/s, take 80 ms. The lab doubles the latency in the first part, because in gloo a sender waits
# until the receiver has announced that it is ready (`source
# <https://github.com/pytorch/gloo/blob/main/gloo/transport/tcp/pair.cc>`__). So a latency of 10 ms
# costs 40 ms per step.
#
# The prediction leaves out the headers of packets, packets that TCP sends twice, and the work of
# TCP and gloo, so the measured speed is below it. Without limit and latency, gloo's work decides,
# and the prediction is wrong: it says that two nodes win, and they lose.

# %% [markdown]
# The samples of a step are what matters
# --------------------------------------
#
# The number of samples changes what a step computes, but not what it sends, because the gradients
# are as large as the model. So give each step more samples, here over 100 Mbit/s and 1 ms:
#
# .. run::
#    :expect: two nodes +\| +16,384
#    :lines: 3 3
#    :mark: two nodes
#    :alone:
#    :timeout: 600
#
#    python -m docs.labs.links tools/bench/results/links.txt > links.txt
#    grep -B 99 "^10 Mbit/s,  10 ms" links.txt
#    grep -A 99 larger links.txt
#
# With 32 samples per node, two nodes are far slower than one. With 8,192, a step computes longer
# than it sends, and two nodes are faster.
#
# For a language model, whose samples are tokens, you can compute how many a step needs. Let the
# model have *P* weights, and each device take *T* tokens per step.
#
# - A device computes about 6 × *P* × *T* operations: 2 per weight and token forward, and 4
#   backward.
# - It sends at most 2 × 4 × *P* bytes: an all-reduce among many nodes sends nearly twice the
#   gradients, which have 4 bytes each.
#
# Both contain *P*, so **the size of the model cancels.** With *F* operations and *B* bytes per
# second, computing takes as long as sending if
#
#    *T* = 4/3 × *F* / *B*
#
# For a GPU that computes 10\ :sup:`14` operations per second, this gives
#
# .. list-table::
#    :header-rows: 1
#    :widths: 40 60
#
#    * - link of each node
#      - tokens per GPU and step, for equal times
#    * - 1 Gbit/s
#      - 1,070,000
#    * - 10 Gbit/s
#      - 107,000
#    * - 100 Gbit/s
#      - 10,700
#    * - 400 Gbit/s
#      - 2,700
#
# With 1.5 times the tokens of the table, ``backward()``, which is two thirds of computing, can hide
# all of the sending. In a ring, one GPU per node sends to another node, so *B* is the bandwidth of
# the whole link.

# %% [markdown]
# What to do about a slow link
# ----------------------------
#
# - **More samples per step.** Enlarge the batch, or accumulate: with ``no_sync``, several batches send
#   only once (:doc:`5c_fast`). Try this first. Both change the training: see
#   :doc:`batch_and_learning_rate`.
# - **Fewer bytes**: communication hooks send gradients in 16 bits, or approximated
#   (:doc:`beyond_comm_hooks`).
# - **Fewer messages**: in local SGD the nodes average their weights every few steps, in place of
#   gradients (:doc:`beyond_local_sgd`).
# - **The right link.** Between GPUs, NCCL chooses a network interface, and prints it with
#   ``NCCL_DEBUG=INFO``. If it is the slow one, set ``NCCL_SOCKET_IFNAME``, or
#   ``GLOO_SOCKET_IFNAME`` for gloo.
#
# Measure your link first: the preflight of :doc:`launchers` times an all-reduce between your nodes.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: between_nodes
#    :next: :doc:`5_minGPT`, or :doc:`launchers` to start it on your cluster
#    :also: torch.distributed.all_reduce, torch.nn.parallel.DistributedDataParallel.no_sync
#
#    You can now predict the speed of two nodes, and say how many samples a step needs.
#
#    .. fold:: A model has 100 MB of gradients. A step computes for 0.5 s. Over a link of 1 Gbit/s, without overlap, are two nodes faster than one?
#
#       Two nodes are slower. Sending 100 MB at 125 MB/s takes 0.8 s, so a step takes 1.3 s for
#       twice the samples, and one node needs 1.0 s for as many. With four batches accumulated, two
#       nodes need 4 × 0.5 + 0.8 = 2.8 s, and one needs 4.0 s.
#
#    .. fold:: You double the width of a language model, so it has four times as many weights. Does the link become the bottleneck?
#
#       No. A step sends four times as much, but it also computes four times as long. The ratio
#       depends on the tokens per step, so it gets worse if memory forces you to halve them.
