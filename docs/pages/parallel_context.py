# %% [markdown]
"""
Context parallelism: a slice of each sequence
=============================================
"""

# %% [markdown]
# **You will be able to** train on sequences that are too long for one GPU, and say which gradients
# travel when ranks share a sequence.
#
# **You need** the trainer of :doc:`5d_gpus`. :doc:`parallel_memory` counts the numbers used here.
#
# With smaller micro-batches, a process keeps fewer activations. The least is one sequence: DDP and
# FSDP give each process whole sequences. The blocks of a GPT-2 keep 12 × 12,304 numbers per token
# for ``backward()``. For one sequence of 131,072 tokens, that is 77 GB in fp32.
#
# So cut the sequence. With *context parallelism*, each of *N* processes has a slice of each
# sequence: of *T* tokens, *T/N*. Almost everything in a GPT treats each token by itself: embeddings,
# ``LayerNorm``, the MLP, the loss. Each process computes these for its slice. Attention is the
# exception, because a token looks at all earlier ones, and these are on other processes.

# %% [markdown]
# Slicing each sequence
# ---------------------
#
# .. lesson-diff:: context_parallel
#    :edit: slice-each-sequence
#    :confirmed: f080aa4d545d
#
#    **The slices.** ``own_slice`` cuts tokens and targets along time. Targets are one token ahead
#    already, so the last token of a slice has its target, though the next rank has that token.
#
#    **The positions.** The model numbers the tokens that it gets from 0. A *forward pre-hook* on
#    ``wpe`` changes its input: rank *r* adds *r* times the length of a slice. The model's code stays
#    that of one GPU.
#
#    **The same windows.** Here all ranks need the same windows. ``StepLoader`` divides a batch
#    among the ranks of the group that it gets, and ``new_subgroups(1)`` makes a group of each rank
#    alone. The validation text follows the loader, and is sliced as well.
#
#    **The scale stays.** Each rank divides its summed loss by the number of *its* targets, and DDP
#    averages the gradients of all ranks. All slices have the same length, so that is the gradient
#    of the mean over all tokens. Clipping, the checkpoint and the log need no change.
#
# The probe counts the tokens that each process reads:
#
# .. run::
#    :expect: (?s)Step +1 \| train loss 4\.2143.*reads 8 of 16 tokens
#    :show: 0 0
#    :mark: Step +[15] \| train|reads
#
#    python -m tools.series run --probe context_parallel@1 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1
#
# The trainer without this edit has another loss, already at the first step:
#
# .. run::
#    :expect: (?s)Step +1 \| train loss 4\.2135.*Step +5 \| train loss 4\.1630
#    :show: 0 0
#    :mark: train loss
#
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1

# %% [markdown]
# Attending to all slices
# -----------------------
#
# So far, tokens of rank 1 see only their own slice. Their queries need the keys and values of rank
# 0 as well.
#
# .. lesson-diff:: context_parallel
#    :edit: attend-to-all-slices
#    :confirmed: 4a0642666cbb
#
#    **The all-gather.** Each rank computes queries, keys and values of its slice, and sends keys and
#    values to all others. ``torch.stack`` makes one tensor of both, so there is one message per
#    block. An ``autograd.Function`` says what happens in ``forward()`` and in ``backward()``,
#    because autograd cannot see through ``dist.all_gather``.
#
#    **The mask.** Rank *r* needs the keys up to the end of its slice, ``end``. Its last query sees
#    all of them, the one before it one key less, and so on. ``is_causal=True`` would align the
#    *first* query with the first key. ``causal_lower_right`` aligns the last ones. It makes no mask
#    of *T/N* × *T* numbers where the GPU's kernel can do without.
#
#    ``attend`` takes the place of the model's own method, and repeats its other lines. The last
#    line of ``backward()`` is temporary: each rank keeps its slice of the gradient.
#
# .. run::
#    :expect: (?s)Step +1 \| train loss 4\.2135.*Step +5 \| train loss 4\.1631.* 3 all-gathers per step
#    :show: 0 0
#    :mark: train loss|all-gathers
#
#    python -m tools.series run --probe context_parallel@2 --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1
#
# The first loss is right, so ``forward()`` is. The next ones are not.

# %% [markdown]
# Sending gradients back
# ----------------------
#
# Rank 1's loss depends on rank 0's keys and values. So rank 1 computes a gradient for them, and rank
# 0 needs it, to pass it on to its weights. In ``context_parallel@2`` it is lost. No error says so,
# and all ranks agree on their weights, since DDP averages what is left.
#
# .. lesson-diff:: context_parallel
#    :edit: send-gradients-back
#    :confirmed: 881170dd74f4
#
#    Each rank has a gradient for the keys and values of *all* slices. The gradient of a slice is the
#    sum over the ranks that used it. That is a *reduce-scatter*: rank *r* gets the sum, over all
#    ranks, of part *r*. It is the backward of every all-gather whose results the ranks use in
#    different ways.
#
#    It adds and does not divide: DDP then divides by the number of ranks, as for all other
#    gradients.
#
# .. run::
#    :expect: (?s)Step +1 \| train loss 4\.2135.*Step +5 \| train loss 4\.1630.* 3 reduce-scatters per step
#    :show: 0 0
#    :mark: train loss|reduce-scatters
#
#    python -m tools.series run --probe context_parallel --data LICENSE --model gpt-nano --block_size 16 --total_steps 5 --log_every 1
#
# (The probe names the reduce-scatters in place of DDP's all-reduce.) Now all losses are those of the
# trainer. So are the weights, with two and with four processes, up to rounding. Those of
# ``context_parallel@2`` are not:
#
# .. run::
#    :expect: (?s)context_parallel_2.pt from mingpt.pt: weights \d\.\de-0[1-4].*two.pt from mingpt.pt: weights \d\.\de-0[678].*four.pt from mingpt.pt: weights \d\.\de-0[678]
#    :mark: weights
#
#    echo --data LICENSE --model gpt-nano --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 --total_steps 20 > options
#    torchrun --standalone --nproc_per_node=1 -m mingpt.main $(cat options) | tail -n 1
#    python -m tools.series run context_parallel@2 $(cat options) | tail -n 1
#    torchrun --standalone --nproc_per_node=2 -m parallel.context_parallel $(cat options) --checkpoint_path two.pt | tail -n 1
#    torchrun --standalone --nproc_per_node=4 -m parallel.context_parallel $(cat options) --checkpoint_path four.pt | tail -n 1
#    python docs/labs/distance.py mingpt.pt context_parallel_2.pt two.pt four.pt
#
# AdamW hides a wrong factor, because it divides it out again. So the tests compare with plain SGD as
# well. The checkpoint is the trainer's: it resumes on any number of processes, with or without
# slices, and ``mingpt.sample`` reads it.

# %% [markdown]
# Two other ways
# --------------
#
# **Ring attention** (`Liu et al. 2023 <https://arxiv.org/abs/2310.01889>`__) never has all keys in
# one place. In *N* − 1 rounds, each rank passes a slice of keys and values to the next one. Softmax
# divides by a sum over all keys, which are not there yet. The *online softmax* keeps a sum for the
# keys so far, and the largest score among them. When a larger score comes, it shrinks what it has:
#
# .. literalinclude:: ../theory/attention_in_slices.py
#    :pyobject: ring
#
# While a rank computes with one slice, the next can be on its way, which this loop does not do.
#
# **Ulysses** (`Jacobs et al. 2023 <https://arxiv.org/abs/2309.14509>`__) exchanges slices for
# heads. Heads do not depend on each other. So an *all-to-all*, in which each rank sends every other
# a different part, gives each rank *some heads of the whole sequence*. Each computes plain causal
# attention, passing no mask, and a second all-to-all gives the slices back. The backward of an
# all-to-all is the all-to-all in the other direction:
#
# .. literalinclude:: ../theory/attention_in_slices.py
#    :pyobject: AllToAll
#
# .. literalinclude:: ../theory/attention_in_slices.py
#    :pyobject: ulysses
#
# The script compares all three with attention on one process. It takes 2 sequences of 256 tokens and
# 8 heads of 16 numbers, on four processes. An error is given as a share of the largest number. The
# script also counts the numbers that autograd keeps for ``backward()``:
#
# .. run::
#    :expect: (?s)gather +keeps .*gradients by [0-9]e-0[678]\nring .*gradients by [0-9]e-0[678]\nulysses .*gradients by [0-9]e[+-]0[06789]\nwrong .*gradients by [1-9]e[+-]0[01]
#    :mark: gradients
#
#    python docs/theory/attention_in_slices.py
#
# **The last line is a trap.** It is the first way again, with
# ``torch.distributed.nn.functional.all_gather``, which has its own backward. Its output is right, and
# its gradients are wrong, without an error: over gloo, that backward mixes up numbers of a tensor
# whose dimensions are permuted in memory (`pytorch#192920
# <https://github.com/pytorch/pytorch/issues/192920>`__). So compare gradients, not only outputs, before
# you trust a collective.

# %% [markdown]
# What it costs
# -------------
#
# For *N* processes and *T* tokens of width *C*, per sequence and block:
#
# ==========  ===================================  ==============================  ================
# way         numbers received in ``forward()``    keys and values kept per rank   limit
# ==========  ===================================  ==============================  ================
# all-gather  2 *TC* (*N* − 1)/*N*, at once        2 *TC*                          none
# ring        the same, in *N* − 1 rounds          2 *TC*/*N*                      none
# Ulysses     4 *TC* (*N* − 1)/*N*\ :sup:`2`       2 *TC*/*N*                      *N* divides heads
# ==========  ===================================  ==============================  ================
#
# - **Memory.** A process keeps 1/*N* of all other activations. But the gathered keys and values
#   have all *T* tokens, and a block keeps them until its backward. With 8 processes, they are 16
#   *C* per token of a slice, as much as all else that a block keeps. Models with few key and value
#   heads, such as Llama 3 405B (8 for 128 heads of queries), gather little. Activation
#   checkpointing gathers again and keeps none (:doc:`parallel_memory`).
# - **The ring above keeps more than it needs**, because autograd keeps the scores of each round. A
#   real one writes its own backward, and computes the scores again.
# - **Waiting.** Nothing can be computed before the all-gather is complete. Llama 3 was trained this
#   way nevertheless, with 16 processes per sequence of 131,072 tokens (`Grattafiori et al. 2024
#   <https://arxiv.org/abs/2407.21783>`__, section 3.3.2): it is simple, any mask fits, and attention
#   grows with *T*\ :sup:`2`, the messages with *T*.
# - **The weights** are whole on each process. FSDP over the same processes shards them, too.
#
# **Balance.** A causal mask makes ranks unequal. The last of *N* slices has up to 2 *N* − 1 times
# as many scores as the first. The first rank is soon done with attention, but gains nothing: it
# waits for the last one in the next block. So attention takes 2 − 1/*N* times as long as it could.
# The remedy is a *zigzag*: cut the sequence into 2 *N* pieces, and give rank *r* the pieces *r* and
# 2 *N* − 1 − *r*, one that sees few keys and one that sees many. All ranks then have the same work.
# Tokens, targets, positions and mask must follow the pieces.
#
# **More processes than slices.** With 64 processes and 8 slices, each row of an 8 × 8 mesh shares
# its sequences, and has its own ranks, size and group. DDP still averages over all 64.
#
# Nothing on this page was measured on a GPU yet.

# %% [markdown]
# What could go wrong
# -------------------
#
# **The first loss is right, and training is worse than without slices.** Gradients of keys and
# values do not return to the rank that has the tokens: ``forward()`` calls a plain
# ``dist.all_gather``, whose results have no graph.
#
# **"IndexError: index out of range in self", or "device-side assert triggered" on GPUs, on all
# ranks but the first, which waits.** The positions are shifted, but the batch is not sliced, so
# they exceed ``block_size``.
#
# **"batch_size is 1, but must be a multiple of the number of processes, 4: the nearest is 4".** The
# command line checks this for all scripts, though here each rank reads the whole batch. Pass
# ``--batch_size 4 --micro_batch_size 1``: a forward pass then has one sequence, in four slices.
#
# **It hangs in validation or in** ``generate()``. Attention is now a :term:`collective`, so every rank
# must compute every batch. To generate text, load the checkpoint into a plain model.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_context
#    :next: :doc:`parallel_experts`, where tokens travel to the weights
#    :also: torch.autograd.Function, torch.distributed.all_gather, torch.distributed.reduce_scatter, torch.nn.functional.scaled_dot_product_attention
#
#    You can now cut a sequence among processes, and say for any collective in ``forward()`` what its
#    backward must be.
#
#    .. fold:: Which gradients does rank 0 get from rank 1, and which does rank 1 get from rank 0?
#
#       Rank 0 gets those of its keys and values. Rank 1 gets zeros: no token of rank 0 may see those
#       of rank 1.
#
#    .. fold:: Your model has 4 key and value heads, and you have 8 GPUs per sequence. Which way?
#
#       Not Ulysses alone, which needs a head per rank. The all-gather is cheap with so few heads.
