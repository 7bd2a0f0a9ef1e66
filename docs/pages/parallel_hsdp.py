# %% [markdown]
"""
HSDP: a copy per node, a shard per GPU
======================================
"""

# %% [markdown]
# **You will be able to** shard a model within each node, so that a slow network between the nodes
# carries gradients only, and no part of the model is lost with a node.
#
# **You need** the script of :doc:`parallel_fsdp`, and :doc:`4_multinode`.
#
# FSDP over two nodes gathers each block twice per micro-batch. Each time, half of the block comes
# from the other node. GPUs of a node are joined by a link of several hundred GB/s; between nodes, a
# GPU has about a tenth of that or less. If the model fits into the GPUs of one node, let each node
# keep a whole copy. Then weights travel within a node only. This is *hybrid* sharding, HSDP.
#
# .. diagram:: hsdp
#
#    Two nodes of two processes. A row is FSDP. A column is DDP, for one shard.

# %% [markdown]
# A copy per node
# ---------------
#
# .. lesson-diff:: hsdp
#    :edit: a-copy-per-node
#    :confirmed: 6e6f1d658720
#
#    **The mesh** is a table of the ranks: a row per node, a column per local rank.
#    ``init_device_mesh`` makes a process group of each row and of each column. ``fully_shard``
#    takes the last dimension for the shards, and the one before for the copies. It wants the names.
#
#    **The shape** comes from torchrun's ``LOCAL_WORLD_SIZE``, so each node must start as many
#    processes as the others. On one node, the mesh has one row, and the script computes what
#    ``fsdp.py`` computes.
#
#    **Nothing else changes**: a shard is a ``DTensor`` as before, so clipping, saving and loading
#    work as they are.
#
# Two nodes with two processes each. Every process keeps half of the model, as with FSDP on two
# processes, and not a quarter:
#
# .. run::
#    :expect: (?s)Step +20 \| train loss 3\.8287.*holds 44424 of 88896 weights.*4 reduce-scatters and 4 all-reduces
#    :show: 0 0
#    :mark: Step +20 \| train|probe
#
#    python -m tools.series run --probe hsdp --data ../LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 20 --log_every 20
#
# FSDP and DDP gave this loss, too (:doc:`parallel_fsdp`). For each of the four sharded modules there
# is now a reduce-scatter among the two processes of the node. Then each process has its shard's
# gradient, averaged over its node. An all-reduce averages it with that of the same shard on the
# other node.

# %% [markdown]
# What crosses the network
# ------------------------
#
# The lab trains both scripts on the two nodes of the cluster in a box, a tool of this project
# (:doc:`launchers`; it needs Linux and root, and elsewhere the lab prints an earlier measurement).
# It reads from the kernel what ``node2`` sends, then limits the link to 10 Mbit/s:
#
# .. run::
#    :expect: (?s)fsdp \| +1,0\d\d,\d+ .*hsdp \| +3[67]\d,\d+
#    :mark: sdp
#    :alone:
#    :timeout: 900
#
#    python -m docs.labs.node_links tools/bench/results/node_links.txt
#
# The model has 88,896 weights, or 355,584 bytes. With FSDP, about three numbers per weight leave
# the node: ¾ in each of two all-gathers, whose ring passes three of four shards to the other node,
# and 1½ in the reduce-scatter, which gloo makes an all-reduce. (NCCL would send 2¼ in all.) With
# HSDP it is one number, that of the all-reduce between two nodes. Over 10 Mbit/s, HSDP trains more
# than twice as fast. With more nodes, it sends up to two numbers: an all-reduce among *N* nodes sends
# 2 (*N* − 1) / *N* numbers per weight from each.

# %% [markdown]
# A node is lost
# --------------
#
# Each node has all shards, and saves whole tensors. Here the checkpoint of ``node2`` is deleted.
# Then both nodes resume from the one of ``node1``, and end with the same weights. They are those of
# DDP on four processes, up to rounding:
#
# .. run::
#    :expect: (?s)Resuming after step 20.*node1/hsdp.pt from ddp.pt: weights \d\.\de-0[678].*\nnode2/hsdp.pt from ddp.pt: weights \d\.\de-0[678]
#    :mark: Resuming|weights
#
#    echo --model gpt-nano --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 > options
#    python -m tools.series run hsdp $(cat options) --data ../LICENSE --total_steps 20 | grep saved
#    rm node2/hsdp.pt
#    python -m tools.series run hsdp $(cat options) --data ../LICENSE --total_steps 40 | grep -v val
#    torchrun --standalone --nproc_per_node=4 -m mingpt.main $(cat options) --data LICENSE --total_steps 40 --checkpoint_path ddp.pt | tail -n 1
#    python docs/labs/distance.py ddp.pt node1/hsdp.pt node2/hsdp.pt

# %% [markdown]
# What it costs
# -------------
#
# **Memory.** A process keeps 1/8 of the model on nodes of 8 GPUs, however many nodes there are.
# FSDP on *N* nodes keeps 1/(8 *N*). So use HSDP if a shard of one node's copy, its gradient, its
# optimizer state, two whole blocks, the root and the activations fit into a GPU. A row of the mesh
# need not be one node: with 2 nodes per copy, the shape is ``(nodes // 2, 2 * local)``.
#
# **Accumulation.** ``set_requires_all_reduce(is_last)`` in place of ``set_requires_gradient_sync``
# reduces within the node for each micro-batch, and crosses the network once. So no process needs
# room for whole gradients.
#
# **A failure** still stops the whole group. What HSDP adds is that no part of the model is on one
# node only: with checkpoints in shards (:doc:`parallel_dcp`), a new node takes its shards
# from any other.
#
# Nothing on this page was measured on a GPU yet.

# %% [markdown]
# What could go wrong
# -------------------
#
# **HSDP is no faster than FSDP.** The rows of the mesh are not nodes. Consecutive ranks form a row,
# so rows cross the network if a launcher puts rank 0 on one node and rank 1 on another. torchrun
# numbers node by node.
#
# **"IndexError: list index out of range" on one node and a hang on the others, or a hang only.**
# The nodes started different numbers of processes, so they compute different shapes. A rank that
# its own shape leaves out fails in ``fully_shard``.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_hsdp
#    :next: :doc:`parallel_dcp`, to save without gathering and without waiting
#
#    You can now say which ranks form which group of a mesh, and what a node sends.
#
#    .. fold:: 4 nodes of 8 GPUs, mesh ``(4, 8)``. With whom does rank 10 exchange weights, and with whom gradients only?
#
#       Weights with ranks 8 to 15, the others of its node. It all-reduces the gradient of its shard
#       with ranks 2, 18 and 26, which have the same local rank.
#
#    .. fold:: What is the mesh ``(1, 32)``, and what is ``(32, 1)``?
#
#       ``(1, 32)`` is FSDP over all 32 ranks. ``(32, 1)`` is DDP: each rank keeps the whole model.
