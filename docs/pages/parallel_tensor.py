# %% [markdown]
"""
Tensor parallelism: a part of every layer
=========================================
"""

# %% [markdown]
# **You will be able to** let several GPUs compute one layer together, and check that the result is
# that of one GPU.
#
# **You need** the script of :doc:`parallel_fsdp`.
#
# FSDP keeps shards, but computes with whole layers: each GPU gathers the weights, and needs at least
# one sequence of its own, with all its activations. If a layer, or a sequence, is too large for
# that, several GPUs can compute one layer together. This is *tensor parallelism* (`Shoeybi et al.
# 2019 <https://arxiv.org/abs/1909.08053>`__). Each process computes with its part of a weight.
# Instead of weights, the processes send activations.

# %% [markdown]
# By hand
# -------
#
# Two layers, *y* = gelu(*x A*) *B*, can be divided with one message. Each process takes some
# columns of *A*, so it computes some of the hidden units. ``gelu`` needs no other unit. Then it
# takes the rows of *B* that belong to its units. The product of these two parts has the shape of
# *y*, and the sum over all processes is *y*:
#
# .. literalinclude:: ../theory/split_by_hand.py
#    :pyobject: Leave
#
# .. literalinclude:: ../theory/split_by_hand.py
#    :pyobject: split
#
# ``Enter`` is the opposite: it sends nothing in ``forward()``, and adds up the gradients of *x* in
# ``backward()``, since each process has only the part that comes through its units. With four
# processes, output and gradients equal those of whole layers, up to rounding:
#
# .. run::
#    :expect: (?s)has 8192 of 32768.*output: \de-0[678].*rows of B: \de-0[678]
#    :mark: e-0
#
#    torchrun --standalone --nproc_per_node=4 docs/theory/split_by_hand.py

# %% [markdown]
# A part of every layer
# ---------------------
#
# A block of the GPT has two such pairs of layers: ``c_fc`` and ``c_proj`` of the MLP, and the
# attention's ``c_attn`` and ``c_proj``, between which no head needs another.
#
# .. lesson-diff:: tensor_parallel
#    :edit: split-each-layer
#    :confirmed: 55e1b0574215
#
#    **The split.** ``parallelize_module`` does what ``Enter`` and ``Leave`` do: it replaces the
#    weights of the named layers by ``DTensor`` shards, and adds hooks that send. ``ColwiseParallel``
#    divides the outputs of a layer, and ``RowwiseParallel`` its inputs. The bias of a row-wise layer
#    stays whole, and is added once. ``LayerNorm`` and the embeddings stay whole as well, and every
#    rank computes them alike.
#
#    **The mesh** has two dimensions. Along ``model``, ranks share layers. Along ``data``, ranks would
#    have different batches, but here it has length 1, so all ranks read the same batch.
#    ``StepLoader`` divides a batch among the ranks of the group that it gets.
#
#    **The sums** of losses go over ``data`` only, since all ranks of a model have the same loss. No
#    gradient is averaged: each rank has the whole gradient of its part.
#
#    **Dropout** outside of the split layers must drop the same units on all ranks, so the seed no
#    longer depends on the rank.
#
#    **Clipping and AdamW** meet shards and plain tensors. ``implicit_replication`` says that the
#    plain ones are the same on all ranks.
#
# Each rank keeps half of the split weights, and everything else:
#
# .. run::
#    :expect: (?s)Step +20 \| train loss.*holds 408960 of 803968 weights
#    :show: 0 0
#    :mark: train loss|holds
#
#    python -m tools.series run --probe tensor_parallel@1 --data LICENSE --model gpt-micro --block_size 16 --total_steps 20 --save_every 20 --log_every 5
#
# This is the same training with DDP. Its losses should be the same, but they are not:
#
# .. run::
#    :expect: Step +5 \| train loss 3\.91
#    :show: 0 0
#    :mark: train loss
#
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main --data LICENSE --model gpt-micro --block_size 16 --total_steps 20 --save_every 20 --log_every 5

# %% [markdown]
# Whole heads on each rank
# ------------------------
#
# The 3 *C* outputs of ``c_attn`` are all queries, then all keys, then all values. Of two ranks, the
# first got the queries and half of the keys. It took them for the queries, keys and values of its
# heads. That trains, too, but it is another model, and its checkpoint is useless to others.
#
# .. lesson-diff:: tensor_parallel
#    :edit: order-the-heads
#    :confirmed: 9a9a37d380e3
#
#    ``swap`` changes the order of the rows from (q, k, v) × ranks to ranks × (q, k, v), before they
#    are divided. Then a rank's part has the queries, keys and values of the same heads.
#
#    **The file** has the usual order: ``_save_checkpoint`` swaps back, and ``_load_checkpoint``
#    swaps again. So DDP, FSDP or another number of ranks can resume from it. AdamW's averages have
#    the order of the weights. ``qkv`` finds the weights by name, and the averages by the
#    optimizer's numbers: first the matrices, then the vectors, as in ``parameter_groups``.
#
# Now the losses are those of DDP:
#
# .. run::
#    :expect: Step +5 \| train loss 3\.91
#    :show: 0 0
#    :mark: train loss
#
#    python -m tools.series run tensor_parallel@2 --data LICENSE --model gpt-micro --block_size 16 --total_steps 20 --save_every 20 --log_every 5

# %% [markdown]
# Between the layers: sequence parallelism
# ----------------------------------------
#
# Between the split layers, every rank still computes the same ``LayerNorm``, dropout and sums, and
# keeps the same activations. *Sequence parallelism* (`Korthikanti et al. 2022
# <https://arxiv.org/abs/2205.05198>`__) divides them as well: there, each rank has some of the
# tokens of each sequence.
#
# .. lesson-diff:: tensor_parallel
#    :edit: split-the-sequence
#    :confirmed: 9fcd57e2891d
#
#    ``Shard(1)`` is the dimension of the tokens. Before a column-wise layer, an all-gather collects
#    all tokens. After a row-wise one, a reduce-scatter adds up the parts and leaves each rank its
#    tokens. An all-reduce consists of these two, so a layer sends no more bytes than before.
#
#    The first block gets whole sequences, of which each rank takes its tokens. After the last block
#    they are gathered, and the rest of the model is unchanged. ``LayerNorm`` sees only some tokens
#    now, so its gradients are parts of a sum. They are DTensors: clipping and AdamW add the parts
#    up when they read them.
#
# The lab counts on four ranks what one of them keeps with ``mingpt.trainer``, with the second
# stage, and with the script:
#
# .. run::
#    :expect: (?s)mingpt.trainer +813,824 weights +2,212,993 .*two +221,312 weights +1,030,273 activations \| 16 all_reduce.*830,593 activations \| 18 all_gather\w+, 16 reduce_scatter
#    :mark: activations
#
#    python -m tools.series show tensor_parallel@2 > parallel/two.py
#    torchrun --standalone --nproc_per_node=4 -m docs.labs.split_activations mingpt.trainer parallel.two parallel.tensor_parallel 2>&1 | grep weights
#
# By the formula of :doc:`parallel_memory`, a block keeps 16 *C* + *h* + 4 numbers per token. Split
# layers divide 12 *C* + *h* of them by the number of ranks. Sequence parallelism also divides
# what the two ``LayerNorm`` keep: their inputs, and 4 numbers. Their outputs, 2 *C*, are gathered,
# and kept whole for the gradients of ``c_attn`` and ``c_fc``.

# %% [markdown]
# Equal, and resumed by another
# -----------------------------
#
# Four ranks train for 20 steps, and DDP trains for 20 more from their file. The result equals
# that of DDP alone, up to rounding:
#
# .. run::
#    :expect: (?s)Resuming after step 20.*weights \d\.\de-0[5678]
#    :mark: Resuming|from
#
#    echo --data LICENSE --model gpt-micro --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 > options
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --total_steps 40 --checkpoint_path ddp.pt | tail -n 1
#    torchrun --standalone --nproc_per_node=4 -m parallel.tensor_parallel $(cat options) --total_steps 20 --checkpoint_path both.pt | tail -n 1
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --total_steps 40 --checkpoint_path both.pt | grep -v val
#    python docs/labs/distance.py ddp.pt both.pt
#
# The tests find the same for ten steps of plain SGD, which hides no factor.

# %% [markdown]
# What it costs
# -------------
#
# - **Messages.** A block makes four all-gathers and four reduce-scatters per micro-batch, of
#   *tokens* × *C* numbers each, and every layer waits for them. FSDP sends weights, which it can
#   fetch ahead. So tensor parallelism usually stays within a node, where GPUs are joined by NVLink.
#   In each step, clipping and AdamW add small all-reduces for the ``LayerNorm``.
# - **Small products.** Each rank's product is smaller, and a GPU computes small products less
#   efficiently. On this CPU, the second stage above trains at less than half of DDP's speed.
# - **What is not divided.** The embeddings and ``lm_head`` stay whole here. Large vocabularies are
#   divided, too, and then the loss needs a message (``loss_parallel``).
#
# Nothing on this page was measured on a GPU yet.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Ranks read different batches.** Each computes its part of another batch, and the sums mean
# nothing. No error tells you, and the loss may still fall. Give the loader a group of one rank.
#
# **"got mixed torch.Tensor and DTensor".** Clipping or the optimizer got shards and plain
# tensors. Use ``implicit_replication``.
#
# **"does not have a sharding strategy registered".** The layer calls an operator that ``DTensor``
# does not know, often a kernel of your own. Call it on ``to_local()``.
#
# **Gradients are averaged by hand.** These ranks have one batch, so there is nothing to average.
# Over ``to_local()``, ``dist.all_reduce`` would mix gradients of different columns.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_tensor
#    :next: :doc:`parallel_two`, to split layers in each node and shard them between nodes
#    :also: torch.distributed.tensor.parallel <torch.distributed.tensor.parallel>, torch.distributed.tensor <torch.distributed.tensor>, torch.distributed.device_mesh.init_device_mesh
#
#    You can now divide a layer by its columns or rows, keep a checkpoint that does not depend on it,
#    and say what is sent.
#
#    .. fold:: Why not divide both layers of the MLP by columns?
#
#       The second layer needs all hidden units as its input, so they would have to be gathered
#       first, and its output would be divided again. Columns, then rows, need one message.
#
#    .. fold:: A node has 8 GPUs, and the model needs the memory of 16. What do you divide how?
#
#       Layers among the 8 GPUs of a node, and shards of them, by FSDP, between the nodes.
