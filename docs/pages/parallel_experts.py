# %% [markdown]
"""
Experts: each token is computed by a part of the model
======================================================
"""

# %% [markdown]
# **You will be able to** train a model whose layers consist of experts on different processes, and
# say by what factor an expert's gradient differs from that of other weights.
#
# **You need** the script of :doc:`parallel_fsdp`.
#
# All scripts so far compute each token with all weights. In a *mixture of experts* (`Shazeer et al.
# 2017 <https://arxiv.org/abs/1701.06538>`__), each MLP is replaced by several, the *experts*, and a
# *router* chooses a few of them for each token. So a model can have many more weights while a
# token costs about as much as before.
#
# With *expert parallelism*, each process keeps some of the experts. Then weights stay where they are,
# as in tensor parallelism, and tokens travel: each to the process that has its expert, and back.

# %% [markdown]
# Many experts in place of an MLP
# -------------------------------
#
# ``mingpt/experts.py`` has such a layer for one process:
#
# .. literalinclude:: ../../mingpt/experts.py
#    :pyobject: Experts
#
# **The router** is one matrix. ``softmax`` turns its products into shares that add up to 1, and
# ``topk`` chooses the largest. The output is the sum of the chosen experts' outputs, each times its
# share. ``topk`` has no gradient for its choice, so the router learns from the shares alone.
#
# **The order.** A product of matrices wants the rows of an expert together. ``order`` sorts the
# (token, expert) pairs by expert. There are ``chosen`` pairs per token, so pair *i* belongs to token
# *i* ``// chosen``. ``order.argsort()`` is the opposite order, which brings the rows back.
#
# First, each process computes all experts, and FSDP shards them like everything else.
#
# .. lesson-diff:: experts
#    :edit: many-for-one
#    :confirmed: 387e3f74f4de
#
#    **The generator** draws the same experts on all ranks, and does not disturb the other weights.
#    There are no biases, as in Mixtral.
#
# .. run::
#    :expect: (?s)Step +5 \| train loss 4\.1782.*Step +20 \| train loss 3\.8389
#    :show: 0 0
#    :mark: train loss
#
#    python -m tools.series run experts@1 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5

# %% [markdown]
# Each process has some of the experts
# ------------------------------------
#
# .. lesson-diff:: experts
#    :edit: share-the-experts
#    :confirmed: 0ab0c0183b0b
#
#    ``DividedExperts`` is the same layer, with another ``compute``.
#
#    **The weights.** ``divide`` replaces each of the two tensors by this rank's part. As a
#    ``DTensor``, it needs nothing else: clipping, saving and loading work as for a shard of FSDP.
#    ``fully_shard`` leaves it alone, because of ``ignored_params``.
#
#    **How many.** First each rank tells every other how many rows it sends to each expert there.
#    ``given`` has a row per rank, with a column for each of its experts. After the *all-to-all*,
#    ``taken`` is what this rank gets.
#
#    **The rows** follow. A second all-to-all sends each rank its rows. Their numbers differ, so both
#    sides must know them. The rows arrive rank by rank, so ``order`` sorts them by expert again. A third
#    all-to-all brings the outputs back. ``backward()`` makes the same journey in the other direction:
#    ``Exchange`` with the numbers reversed.
#
#    ``tolist()``, among others, waits for a GPU in each block.
#
# .. run::
#    :expect: (?s)Step +20 \| train loss 3\.8389.* 15 all-to-alls per step
#    :show: 0 0
#    :mark: train loss|all-to-alls
#
#    python -m tools.series run --probe experts@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5
#
# Per block, there are three all-to-alls in the forward pass, and two in ``backward()``. The losses are
# those of the first stage, almost: the one of step 15 differs in the last digit.

# %% [markdown]
# The gradient's scale
# --------------------
#
# FSDP averages a gradient over the ranks, and each rank's loss is a mean over *its* tokens. An expert
# gets the tokens of all ranks, so its gradient is the sum of what FSDP averages: *N* times too large.
# AdamW divides a constant factor out again, so the losses hardly show it. Clipping, which sees
# too large a norm, makes the small difference above, and with SGD the experts would learn *N* times
# as fast.
#
# .. lesson-diff:: experts
#    :edit: one-scale
#    :confirmed: 6f7423ce8551
#
#    A hook divides the gradient when it arrives. It belongs to the weight, so it sees the gradient of
#    each micro-batch.
#
# AdamW's averages of the gradients, which ``distance.py`` calls momenta, show it. This is how far
# ``experts@2`` and ``@3`` are from the first stage, whose gradients FSDP averages:
#
# .. run::
#    :expect: (?s)experts_2.pt .*momenta \d\.\de-0[1-4]\n.*experts_3.pt .*weights \d\.\de-0[678], momenta \d\.\de-0[6-9]
#    :mark: weights
#
#    echo --data LICENSE --model gpt-nano --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 --total_steps 20 > options
#    python -m tools.series run experts@1 $(cat options) | tail -n 1
#    python -m tools.series run experts@2 $(cat options) | tail -n 1
#    python -m tools.series run experts@3 $(cat options) | tail -n 1
#    python docs/labs/distance.py experts_1.pt experts_2.pt experts_3.pt

# %% [markdown]
# Experts that are equally busy
# -----------------------------
#
# Nothing so far makes the router use all experts. An expert that gets more tokens learns more, and
# then it may get even more. With experts on different processes, all wait for the busiest.
#
# .. lesson-diff:: experts
#    :edit: keep-all-busy
#    :confirmed: 9bb80f745015
#
#    **The rule** is that of the Switch Transformer (`Fedus et al. 2021
#    <https://arxiv.org/abs/2101.03961>`__, equation 4): for each expert, the share of tokens that
#    it gets, times the mean share that the router gives it. The sum of these is multiplied by the
#    number of experts, so it is 1 if all get equally much. The first factor has no gradient. The
#    second one lowers the router's share for an expert with too many tokens.
#
#    ``Experts`` computes it already, and ``_run_batch`` adds it now.
#
#    **Over all ranks.** The shares of tokens are averaged over all ranks, so the loss is that of
#    the whole micro-batch. With only its own shares, each rank would have to be balanced, and the
#    training would depend on the number of processes (`Qiu et al. 2025
#    <https://arxiv.org/abs/2501.11873>`__).
#
#    The loss that is printed is still that of the text alone.
#
# .. run::
#    :expect: (?s)Step +20 \| train loss 3\.83[56]
#    :show: 0 0
#    :mark: train loss
#
#    python -m tools.series run experts --data LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 5
#
# The lab trains 400 steps with ``BALANCE = 0`` and with 0.01, and counts which share of the tokens
# each of the eight experts gets in the last 20. An equal share is 12.5 %:
#
# .. run::
#    :expect: (?s)BALANCE 0 +block 0.*BALANCE 0.01 block 0
#    :lines: 1 2
#    :mark: block 0
#    :alone:
#
#    torchrun --standalone --nproc_per_node=1 -m docs.labs.expert_load > load.txt
#    grep BALANCE load.txt
#    grep shares load.txt
#
# The balancing loss works against the text's loss, which ends slightly higher with it (3.27 against
# 3.26). DeepSeek-V3 mainly adds a number to each expert's score, only when it chooses, and raises
# it while the expert has too little to do (`Wang et al. 2024
# <https://arxiv.org/abs/2408.15664>`__).

# %% [markdown]
# What it costs
# -------------
#
# - **Memory.** A process keeps 1/*N* of the experts and of everything else. It also needs two whole
#   blocks without their experts, the root, and the arriving rows, whose number depends on the
#   router.
# - **Messages.** Per block and micro-batch, each token's ``n_embd`` numbers travel ``CHOSEN`` times
#   there and ``CHOSEN`` times back, and the same in ``backward()``. Of them, about (*N* − 1) / *N*
#   go to another process. FSDP would gather all experts instead, used or not.
# - **Waiting.** All ranks wait for the one whose experts have most tokens. Many systems give each
#   expert a *capacity* and drop the tokens above it. Nothing is dropped here, so no token's output
#   depends on the number of processes.
# - **Small products.** Each expert computes a few rows only. GPUs have *grouped* products for this
#   (``torch.nn.functional.grouped_mm`` since torch 2.10). Here a loop computes one expert at a time.
#
# Nothing on this page was measured on a GPU yet.

# %% [markdown]
# What could go wrong
# -------------------
#
# **DDP around the whole model**, if experts are plain tensors, gives all ranks the experts of rank 0,
# and averages the gradients of what were different experts. DDP refuses experts that are a
# ``DTensor``.
#
# **Another number of processes gives another loss curve.** If step 1 already differs, a rank has other
# initial weights, or rows return in another order. If only later ones do, the scale or the balance is
# wrong, or a run accumulates. Rounding can also change a choice if two shares are almost equal.
#
# **An abort in** ``all_to_all_single``. What a rank gives is not what the other takes. Over gloo, a rank
# that gets too few rows sees no error. Exchange the numbers first, for each batch.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_experts
#    :next: :doc:`parallel_without_restart`, where a lost node stops no other
#    :also: torch.topk, torch.distributed.tensor <torch.distributed.tensor>
#
#    You can now send each token to its expert and back, and check every gradient's scale.
#
#    .. fold:: The output is the sum of experts times their shares. What if ``CHOSEN`` is 1 and the share is left out?
#
#       The router gets no gradient from the text, because the choice has none. It would learn to be
#       balanced, and nothing else.
#
#    .. fold:: Why must the hook divide by the number of ranks, and not by the number of tokens?
#
#       Each rank has already divided its loss by its number of tokens. The mean over all tokens is
#       the mean of these, so the sum over ranks must be divided by the number of ranks. This holds
#       even if one expert gets all tokens or none.
