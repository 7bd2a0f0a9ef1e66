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
# Which messages are sent, and how large they are, depends on the script alone, so a laptop can count
# them. What is left is arithmetic: ``parallel/scale/costs.py`` has it, without PyTorch.

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
# tensor (TP)          4 *L* + 2 all-gathers                       *t C*
# tensor (TP)          4 *L* reduce-scatters                       *t C*
# context (CP)         *L* all-gathers and *L* reduce-scatters     2 *t* × the width of keys
# experts (EP)         4 *L* all-to-alls, *L* more of counts       *t C* × experts per token
# pipeline (PP)        2 messages per border                       *t C*
# ===================  ==========================================  =================================
#
# A ring of *n* ranks sends (*n* − 1)/*n* of the tensor for an all-gather or a reduce-scatter, and
# twice that for an all-reduce (:doc:`1a_speed`). With FSDP, each micro-batch sends its gradients,
# so that no GPU keeps whole ones. (The second edit of :doc:`FSDP <parallel_fsdp>` keeps them, and
# sends once per step. So does FSDP in a pipeline, which gathers its weights once per step, too.)
#
# Are these numbers right? PyTorch has a backend named ``fake``, which answers each collective at
# once and sends nothing. One process then acts as rank 0 of 64. The lab runs a forward and a
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
# A ``TorchDispatchMode`` sees each operation that PyTorch carries out, collectives included. The rows
# of DDP, pipeline and experts are not counted here.

# %% [markdown]
# How long it takes
# -----------------
#
# **Computing.** Each weight that multiplies costs 6 operations per token, 2 forward and 4 backward
# (`Kaplan et al. 2020 <https://arxiv.org/abs/2001.08361>`__), and causal attention 6 *C T* per
# block, for sequences of *T* tokens. A GPU reaches a share of its peak: 40 % is usual. This share is
# the one number that must be measured.
#
# **Messages** of all but FSDP and DDP are waited for. DDP's hide behind the last micro-batch's
# ``backward()``. FSDP gathers the next block while one computes, so its messages cost nothing until
# they take longer than computing. Nothing hides the first all-gather and the last reduce-scatter,
# those of the embedding. A ring whose ranks fit into a node uses the node's links, otherwise the
# network.
#
# **The bubble** of a pipeline adds (*S* − 1)/(*M v*) of the time, for *S* ranks with *v* stages
# each and *M* micro-batches (:doc:`Pipeline parallelism <parallel_pipeline>` counts it as a share of the longer time).
#
# .. literalinclude:: ../../parallel/scale/costs.py
#    :pyobject: step

# %% [markdown]
# Checked on this machine
# -----------------------
#
# Two cores and gloo have no fast links, and no core that is free to send while others compute. So
# the formula is simpler, the sum: a step of DDP takes what a step under ``no_sync()`` takes, plus
# an all-reduce per bucket. A step of FSDP takes as long as one over ``fake``, which computes and
# copies all and sends nothing, plus two all-gathers and a reduce-scatter per layer. ``check``
# measures these parts and whole steps of both, for MLPs of different sizes. With two
# processes, then with four:
#
# .. run::
#    :expect: (?s)DDP  median error.*FSDP median error.*DDP  median error.*FSDP median error
#    :mark: median
#    :alone:
#
#    torchrun --standalone --nproc_per_node=2 -m parallel.scale check
#    torchrun --standalone --nproc_per_node=4 -m parallel.scale check
#
# In ten runs, the median error of DDP was 2 to 17 %, and that of FSDP 3 to 23 %. Each collective is
# measured after some computing, as in training: in a loop of nothing else, it is faster, because the
# threads that send are awake. The first rank to arrive waits for the last, so the last one's time
# counts. The column "waits" is how much later it came, in all-reduces.

# %% [markdown]
# Held against published runs
# ---------------------------
#
# The authors of torchtitan measured Llama 3.1 on up to 512 H100 (`their table
# <https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md>`__),
# and Meta trained the largest on 16,384 (`Grattafiori et al. 2024
# <https://arxiv.org/abs/2407.21783>`__, table 4, in TFLOP/s). `Jiang et al. 2024
# <https://arxiv.org/abs/2402.15627>`__ compare Megatron-LM with their MegaScale on A100 (table 2),
# and the scripts of `llm.c <https://github.com/karpathy/llm.c/tree/master/scripts>`__ say how long a
# step takes on eight. In each group, the first run fits the rate of computing, and the others are
# predicted with it, in the published unit:
#
# .. run::
#    :expect: (?s)FSDP 128 +published +5,605, predicted +5,650, \+1%.*16,384.*12,288
#    :mark: predicted
#
#    python -m parallel.scale published
#
# Sixteen predictions, and what they say:
#
# - **FSDP from 8 to 128 GPUs** loses 2 to 3 %, and the formulas say why: all messages but the
#   embedding's are hidden.
# - **405B with a pipeline** is predicted from the 8B model, with another layout, within 2 %, partly
#   by luck: this run also overlapped the messages of tensor parallelism. Meta's 16,384 GPUs have
#   half the micro-batches of its 8,192, so the bubble grows.
# - **Interleaved stages** gained 28 %, and the bubble explains 10 %, if each rank has two. The
#   formulas do not explain the rest.
# - **70B** was faster than predicted. It computed 16 sequences at once, and larger products use a
#   GPU better. One share of the peak for all is too simple.
# - **Context parallelism** is far off. The messages are small, so it is attention itself that ran
#   slower: in slices, and at lengths where it is most of the work. The formulas give it the same
#   share of the peak as a product. ``predict`` is too kind to it, and so tries only slices of
#   16,384 tokens or more.
# - **175B on 3,072 to 12,288 GPUs**, with a fixed batch: the formulas predict a loss of 9 to 11 %.
#   The bubble and the part of DDP's all-reduce that nothing hides take as long as before, and so a
#   larger share of a shorter step. MegaScale lost 7 %, and Megatron-LM 15.
# - **GPT-2 in llm.c** beat the prediction by 4 and 9 %, the more the larger it was: larger products
#   again.
#
# **Memory.** torchtitan reports 82.4 GiB on 8 GPUs and 67.0 on 128, with as many tokens per GPU. By
# the formula, 16 bytes per weight over all GPUs, it is 14.0 GiB less, not 15.4.

# %% [markdown]
# Which layout?
# -------------
#
# ``predict`` tries all sensible layouts, leaves out those that do not fit, and sorts by speed. A
# bar's length is the speed, and its parts are where the time goes. "Again" means activation
# checkpointing. The hours, times your price for one, are the cost of a billion tokens:
#
# .. run::
#    :expect: (?s)llama3-405b.*TP \d
#    :mark: layout
#
#    python -m parallel.scale predict llama3-405b --gpus 512 --sequences 256 --top 5
#    python -m parallel.scale predict llama3-8b --gpus 128 --sequences 256 --top 5
#    python -m parallel.scale predict gpt2 --gpus 8 --context 1024 --top 3
#
# Differences of a few percent mean nothing. For the small model, DDP is as good as any. With 8B, two
# GPUs that share layers each keep half of the activations. That leaves room for two sequences at once,
# or for all of a model's shards in one node.

# %%
import lab

from parallel.scale import choose
from parallel.scale.costs import Work

figure, axes = lab.picture(
    "Tokens per second of the best layout for Llama 3 8B with 256 sequences of 8,192 tokens per "
    "step. At first each GPU adds as much as those before it. From 1,024 GPUs on, or from 512 with "
    "the slower link, it adds less.",
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
# .. play:: scale
#
#    The best layout for 8,192 tokens per sequence, at 40 % of the peak. Above, what fills a GPU's
#    memory: weights in blue and activations in orange. Below, what a step's time is spent on:
#    computing in blue, the bubble in grey, messages in orange.
#
# With a fixed batch, more GPUs mean less work for each, and the messages do not shrink. A larger
# batch hides that, up to the size at which more samples per step no longer teach more
# (:doc:`batch_and_learning_rate`).

# %% [markdown]
# A hundred to a hundred thousand GPUs
# ------------------------------------
#
# All ranks wait for the slowest in each step, and for the restart when one fails. Both grow with
# the number of GPUs, and the formulas above have neither:
#
# .. run::
#    :expect: 100,000
#
#    python -m parallel.scale large
#
# - **Slowest** is the share of time for which the others wait, if times have a standard deviation
#   of 1 % of a step (``--spread``). It grows slowly, about as √(2 ln *N*).
# - **Failures.** Meta's 419 in 54 days on 16,384 GPUs (section 3.3.4 of the paper above) are one
#   per 5.8 years of a GPU (``--years``). For a save that takes *C* seconds, and *M* seconds between
#   failures, √(2 *C M*) between two saves loses least (Young 1974). With saves of 30 s and restarts
#   of 10 minutes, 100,000 such GPUs lose 40 % of the time: one needs fewer failures, faster
#   restarts, or groups (:doc:`parallel_without_restart`).
# - **DiLoCo** (:doc:`beyond_local_sgd`) sends all weights, once in 10 to 500 steps. Over a link of 1
#   Gbit/s, it needs hundreds of steps between two averages.
#
# What none of these formulas has: the latency of each message, which counts for small models, the
# network's congestion, and experts that get more tokens than others.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Out of memory, though it should fit.** For fragments and NCCL's buffers, ``predict`` only leaves
# 10 %. Start with one block fewer, and read ``torch.cuda.max_memory_allocated()``.
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
#    .. fold:: Exercise: Llama 3 70B on 64 H100, 256 sequences of 8,192 tokens per step. Say first which ways to divide it fit at all, and which is fastest. Then let ``predict`` judge.
#
#       With 16 bytes per weight, 70 billion weights take 1,130 GB, 18 GB on each of 64 GPUs. FSDP
#       alone fits if it computes the activations again, a third more arithmetic. Eight GPUs that
#       share the layers keep an eighth of the activations each, and need not compute them again.
#       Two stages of a pipeline gain 3 % more, since a pipeline gathers its weights once per step:
#
#       .. run::
#          :expect: (?s)TP 8 × FSDP 8 +47 .*FSDP 64 +49 +1, again
#
#          python -m parallel.scale predict llama3-70b --gpus 64 --sequences 256 --top 6
#
#    .. fold:: A model of 8 billion weights, FSDP on 8 GPUs, 50 GB/s: how many tokens must a GPU's micro-batch have, so that messages are hidden?
#
#       All-gathers of 16 GB twice and a reduce-scatter of 32 GB take 64 × 7/8 / 50 = 1.1 s. At 400
#       TFLOP/s and 51 billion operations per token, a GPU computes 7,800 tokens per second: about
#       8,700.
