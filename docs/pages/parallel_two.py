# %% [markdown]
"""
Two dimensions: FSDP and tensor parallelism together
====================================================
"""

# %% [markdown]
# **You will be able to** split layers within each node and shard the parts between nodes, and say
# which ranks send what to which.
#
# **You need** the scripts of :doc:`parallel_tensor` and :doc:`parallel_fsdp`.
#
# Tensor parallelism sends activations in every layer, and each layer waits for them. So it needs
# fast links, and usually stays within a node. FSDP sends weights, which it can fetch ahead. So a large
# model uses both: tensor parallelism within each node, and FSDP between the nodes.
#
# .. diagram:: two-dimensions
#
#    Two nodes of two processes. A row is tensor parallelism: its ranks share layers and read the
#    same batch. A column is FSDP, for one part of each layer.

# %% [markdown]
# A shard of each part
# --------------------
#
# .. lesson-diff:: two_dimensions
#    :edit: shard-the-parts
#    :confirmed: d4d9f84aef83
#
#    **The mesh** now has a row per node, as that of HSDP has. The loader already divides batches
#    among the ranks of ``data`` only, so each node gets another share.
#
#    **The order.** First ``split`` gives each rank its part of a layer. Then ``fully_shard`` cuts
#    this part among the nodes. In the forward pass, a split layer gathers this rank's part, not the
#    whole.
#
#    **The norm.** ``clip_grad_norm_`` stacks the norms of all gradients, and ``DTensor`` refuses
#    that for two meshes: the embeddings are sharded over ``data`` only, and the layers over both.
#    So here each norm becomes an ordinary tensor first. ``foreach=False`` scales one gradient at a
#    time, since the meshes cannot be mixed there either.
#
#    **The gradients** are sent once per step, as in FSDP.
#
#    **The file** is still that of DDP and FSDP: ``full_tensor`` collects shards from both
#    dimensions, and ``distribute_tensor`` cuts by both.
#
# Each of four processes keeps about a quarter of the model, and the losses are those of
# :doc:`parallel_tensor`. torch writes warnings about this mesh, which ``grep`` leaves out here:
#
# .. run::
#    :expect: (?s)Step +5 \| train loss 3\.91.*holds 204544 of 803968 weights
#    :mark: train loss|holds
#
#    python -m tools.series run --probe two_dimensions --data ../LICENSE --model gpt-micro --block_size 16 --total_steps 20 --save_every 20 --log_every 5 | grep -E 'loss|probe'

# %% [markdown]
# Equal, and resumed by another
# -----------------------------
#
# Two nodes train for 20 steps. Then DDP on one machine trains for 20 more from their file, and gets
# the weights of DDP alone, up to rounding:
#
# .. run::
#    :expect: (?s)Resuming after step 20.*weights \d\.\de-0[5678]
#    :mark: Resuming|from
#
#    echo --model gpt-micro --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 > options
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --data LICENSE --total_steps 40 --checkpoint_path ddp.pt | tail -n 1
#    python -m tools.series run two_dimensions $(cat options) --data ../LICENSE --total_steps 20 | grep saved
#    cp node1/two_dimensions.pt both.pt
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --data LICENSE --total_steps 40 --checkpoint_path both.pt | grep -v val
#    python docs/labs/distance.py ddp.pt both.pt
#
# The tests find the same for ten steps of plain SGD, which hides no factor.

# %% [markdown]
# What it costs
# -------------
#
# - **Memory.** Of the split layers' weights and optimizer state, a process keeps 1/(*nodes* ×
#   *local*). Of gradients, too, unless it accumulates: then 1/*local*. Activations are divided by
#   *local* only, as in :doc:`parallel_tensor`.
# - **Messages between nodes.** FSDP gathers and reduces one part of each layer, so each GPU sends
#   and receives about 1/*local* of what it would with FSDP alone. But all GPUs of a node send: with
#   4 nodes of 8, each node sends ¾ of all weights per all-gather, with FSDP alone almost all.
# - **The batch.** FSDP on 64 GPUs needs 64 sequences per step at least. With 8 nodes of 8 GPUs, 8
#   are enough. That is how runs on thousands of GPUs keep their batch small.
# - **The shape is yours.** ``LOCAL_WORLD_SIZE`` is a good default. A row of 4 on nodes of 8 GPUs, with
#   shape ``(world // 4, 4)``, sends fewer activations and more weights. Rows must not cross nodes.
#
# Llama 3 405B adds a pipeline and context parallelism as third and fourth dimensions (`Grattafiori et
# al. 2024 <https://arxiv.org/abs/2407.21783>`__, section 3.3.2): tensor parallelism innermost, then
# context, pipeline, and sharded data parallelism outermost. What is waited for gets the fastest
# links.
#
# Nothing on this page was measured on a GPU yet.

# %% [markdown]
# What could go wrong
# -------------------
#
# **The weights have the right shape and are wrong.** In torch 2.13, a weight split by hand with
# ``_StridedShard``, then by ``fully_shard``, comes back from ``full_tensor()`` with rows mixed or lost,
# without an error. So ``tensor_parallel.py`` swaps heads before the split, and in each file. Compare a
# saved file with one of DDP before you trust it.
#
# **"2 sequential all_reduce operations will be performed" or "2 sequential all_gather operations".**
# A norm or a whole tensor is collected along one dimension, then along the other. It is correct, and
# slow only if it happens in every layer.
#
# **"FSDPBlock) returned a view tensor".** The hook that gathers the last block's tokens returns a view.
# Nothing changes it in place here, so you can ignore this.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_two
#    :next: :doc:`parallel_pipeline`, where each process has some of the layers
#    :also: torch.distributed.device_mesh.init_device_mesh, torch.distributed.fsdp.fully_shard, torch.distributed.tensor.parallel <torch.distributed.tensor.parallel>
#
#    You can now say for each dimension of a mesh which ranks it joins, and what they send.
#
#    .. fold:: 4 nodes of 8 GPUs, mesh ``(4, 8)``. With whom does rank 10 exchange activations, and with whom weights?
#
#       Activations with ranks 8 to 15, the others of its node. Weights and gradients with ranks 2, 18
#       and 26, which have the same part of each layer.
#
#    .. fold:: HSDP has the same mesh. What is the difference?
#
#       In a row of HSDP, the ranks read different batches and gather whole layers. Here they read
#       the same batch and never have the whole of a split layer. In a column of HSDP, gradients are
#       averaged. Here weights are gathered, too.
