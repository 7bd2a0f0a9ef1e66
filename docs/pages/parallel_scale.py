# %% [markdown]
"""
How far does it scale?
======================
"""

# %% [markdown]
# **You will be able to** predict memory and speed of a model on many GPUs before you rent them, and say
# which part of the prediction to trust.
#
# **You need** the pages on the ways to divide a model, at least :doc:`parallel_memory`,
# :doc:`parallel_fsdp` and :doc:`parallel_tensor`.
#
# The pages before this one prove that results are equal, and a laptop is enough for that. Speed is
# another matter. But which messages are sent, and how large they are, depends on the script alone,
# so a laptop can count them, too. What is left is arithmetic: ``parallel/scale/costs.py`` has it in
# 200 lines without PyTorch.

# %% [markdown]
# What is sent
# ------------
#
# For *L* blocks of *B* weights each, *E* other weights, width *C* and *t* tokens per micro-batch:
#
# ===================  ==========================================  =================================
# dimension            per micro-batch                             numbers of a whole tensor
# ===================  ==========================================  =================================
# FSDP                 2 *L* + 1 all-gathers                       *B*; *E* once
# FSDP                 *L* + 1 reduce-scatters                     *B*; *E* once
# DDP                  all-reduces, once per step                  *L B* + *E* in all
# tensor parallelism   4 *L* + 2 all-gathers                       *t C*
# tensor parallelism   4 *L* reduce-scatters                       *t C*
# context parallelism  *L* all-gathers and *L* reduce-scatters     2 *t* × the width of keys
# pipeline             2 messages per border                       *t C*
# ===================  ==========================================  =================================
#
# A ring of *n* ranks sends (*n* − 1)/*n* of the tensor for an all-gather or a reduce-scatter, and twice
# that for an all-reduce (:doc:`1a_speed`).
#
# Are these numbers right? PyTorch has a backend named ``fake``, which answers each collective at
# once and sends nothing. One process then believes to be rank 0 of 64. The lab runs a forward and a
# backward pass of three scripts that way, and counts collectives and their numbers:
#
# .. run::
#    :expect: (?s)(?:formula equal.*?){9}
#    :mark: 64 ranks
#
#    python docs/labs/fake_ranks.py
#
# .. literalinclude:: ../labs/fake_ranks.py
#    :pyobject: Collectives
#
# A ``TorchDispatchMode`` sees each operation that PyTorch carries out, collectives included. DDP's
# ``backward()`` fails over ``fake``, and a pipeline has other messages on each rank, so their rows
# are not counted here.

# %% [markdown]
# How long it takes
# -----------------
#
# **Computing.** Each weight that multiplies costs 6 operations per token, 2 forward and 4 backward
# (`Kaplan et al. 2020 <https://arxiv.org/abs/2001.08361>`__), and causal attention 6 *C T* per
# block, for sequences of *T* tokens. A GPU reaches a share of its peak: 40 % is usual. This share
# is the one number that must be measured.
#
# **Messages** of tensor and context parallelism are waited for. FSDP gathers the next block while one
# computes, so its messages cost nothing until they take longer than computing. Nothing hides the
# first all-gather and the last reduce-scatter, those of the embedding. A ring whose ranks fit into a
# node uses the node's links, otherwise the network.
#
# **The bubble** of a pipeline adds (*S* − 1)/(*M v*) of the time, for *S* ranks with *v* stages
# each and *M* micro-batches (:doc:`parallel_pipeline` counts it as a share of the longer time).
#
# .. literalinclude:: ../../parallel/scale/costs.py
#    :pyobject: step

# %% [markdown]
# Held against published runs
# ---------------------------
#
# The authors of torchtitan measured Llama 3.1 on up to 512 H100 (`their table
# <https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md>`__),
# and Meta trained the largest on 16,384 (`Grattafiori et al. 2024
# <https://arxiv.org/abs/2407.21783>`__, table 4, in TFLOP/s). In each group, the first run fits the
# rate of computing, and the others are predicted with it, in the published unit:
#
# .. run::
#    :expect: (?s)FSDP 128 +published 5,605, predicted 5,650, \+1%.*16,384
#    :mark: predicted
#
#    python -m parallel.scale published
#
# Ten predictions, and what they say:
#
# - **FSDP from 8 to 128 GPUs** loses 2 to 3 %, and the formulas say why: all messages but the
#   embedding's are hidden.
# - **405B with a pipeline** is predicted from the 8B model, with another layout, within 2 %.
#   (Partly by luck: this run also overlapped the messages of tensor parallelism.) Meta's 16,384
#   GPUs have half the micro-batches of its 8,192, so the bubble grows.
# - **Interleaved stages** gained 28 %, and the bubble explains 10 %, if each rank has two. The
#   formulas do not explain the rest.
# - **70B** was faster than predicted. It computed 16 sequences at once, and larger products use a
#   GPU better. One share of the peak for all is too simple.
# - **Context parallelism** is far off. The messages are small, so it is attention itself that ran
#   slower: in slices, and at lengths where it is most of the work. The formulas give it the same
#   share of the peak as a product. So ``predict`` is too kind to it. It tries slices of 16,384
#   tokens or more only.
#
# **Memory.** torchtitan reports 82.4 GiB on 8 GPUs and 67.0 on 128, with as many tokens per GPU. By
# the formula, 16 bytes per weight over all GPUs, it is 14.0 GiB less, not 15.4.

# %% [markdown]
# Which layout?
# -------------
#
# ``predict`` tries all sensible layouts, leaves out those that do not fit, and sorts by speed.
# "Again" means activation checkpointing:
#
# .. run::
#    :expect: (?s)llama3-405b.*TP \d
#    :mark: layout
#
#    python -m parallel.scale predict llama3-405b --gpus 512 --sequences 256 --top 5
#    python -m parallel.scale predict llama3-8b --gpus 128 --sequences 256 --top 5
#    python -m parallel.scale predict gpt2 --gpus 8 --context 1024 --top 3
#
# Differences of a few percent mean nothing. For the small model, DDP is as good as any. With 8B and
# FSDP alone, each micro-batch of one sequence moves all weights and gradients, and that takes
# longer than computing it. Two GPUs that share layers each keep half of the activations. So two
# sequences fit at once, or all shards within a node: tensor parallelism helps.

# %%
import lab

from parallel.scale import choose
from parallel.scale.costs import Work

figure, axes = lab.picture(
    "Tokens per second of the best layout for Llama 3 8B with 256 sequences of 8,192 tokens per "
    "step. At first each GPU adds as much as those before it. From 512 or 1,024 GPUs on, by the "
    "link, it adds less.",
    height=3.2,
)
counts = [2**n for n in range(3, 13)]
for link in (400, 100):
    speeds = []
    for gpus in counts:
        on = choose.machine("h100", 0.4, link)
        found, _ = choose.ranked(choose.MODELS["llama3-8b"], gpus, Work(256, 8192), on)
        speeds.append(found[0][0])
    axes.loglog(counts, speeds, "o-", label=f"{link} Gbit/s per GPU")
ideal = [speeds[0] * gpus / counts[0] for gpus in counts]
axes.loglog(counts, ideal, "--", color="gray", label="as fast per GPU as on 8")
axes.set(xlabel="GPUs", ylabel="tokens/s")
axes.set_xticks(counts[::3], counts[::3])
axes.minorticks_off()
axes.legend()

# %% [markdown]
# With a fixed batch, more GPUs mean less work for each, and the messages do not shrink. A larger
# batch hides that, up to the size at which more samples per step no longer teach more
# (:doc:`batch_and_learning_rate`).

# %% [markdown]
# What it leaves out
# ------------------
#
# - **The slowest GPU.** All ranks wait for it in each step. The loss is some percent or more: Goyal
#   et al. (2017, `arXiv 1706.02677 <https://arxiv.org/abs/1706.02677>`__) reached 90 % of ideal at
#   256 GPUs, where the formulas hide almost all messages.
# - **Failures.** Meta counted 419 unexpected interruptions in 54 days on 16,384 GPUs (section 3.3.4 of
#   the paper above), one in three hours. Each costs the time since the last save and the restart.
# - **Latency** of each message, which counts for small models, and the network's congestion.
# - **Experts**, DiLoCo, and anything that overlaps the messages of tensor parallelism.
# - **This machine.** The formulas know nothing of CPUs: :doc:`1a_speed` and :doc:`between_nodes` have
#   what was measured here.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Out of memory, though it should fit.** For fragments and NCCL's buffers, ``predict`` only leaves
# 10 %. Start with one block fewer, and read ``max_memory_allocated`` (:doc:`5d_gpus`).
#
# **Half as fast as predicted.** Measure the share of the peak on one GPU first, and pass it as
# ``--share``. If one GPU is slow, the network is not to blame.
#
# **Fast on one node, slow on two.** The link is not what you think. ``nccl-tests`` or
# :doc:`between_nodes` measure it. 400 Gbit/s are 50 GB/s, and per GPU, not per node.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_scale
#    :next: :doc:`your_script`, to port your own script to DDP
#    :also: torch.utils._python_dispatch <torch.utils>, torch.distributed <torch.distributed>
#
#    You can now say for a model and a cluster which layout to try first, and what will limit it.
#
#    .. fold:: A model of 8 billion weights, FSDP on 8 GPUs, 50 GB/s: how many tokens must a GPU compute per step, so that messages are hidden?
#
#       All-gathers of 16 GB twice and a reduce-scatter of 32 GB take 64 × 7/8 / 50 = 1.1 s. At 400
#       TFLOP/s and 51 billion operations per token, a GPU computes 7,800 tokens per second: about
#       8,700.
#
#    .. fold:: Why does the bubble grow if you double the GPUs by FSDP, with the same batch?
#
#       Each pipeline gets half of the sequences, so half of the micro-batches.
#
#    .. fold:: Which of the formulas would you measure first on a new cluster?
#
#       The share of the peak on one GPU. All others are counted or read off data sheets.
