# %% [markdown]
"""
Checkpoints in shards: save without waiting
===========================================
"""

# %% [markdown]
# **You will be able to** save a sharded model without gathering it, let training continue
# meanwhile, and resume on any number of processes.
#
# **You need** the script of :doc:`parallel_hsdp`.
#
# ``fsdp.py`` and ``hsdp.py`` save whole tensors: all shards travel to all processes, one process per
# node holds the whole model in host memory, and training waits until everything is there. With 70
# billion weights and AdamW in fp32, that is 840 GB at every save.
#
# Every process already holds a part of the model. So let each write its own part, in the
# background. ``torch.distributed.checkpoint``, DCP for short, does both.

# %% [markdown]
# A file per process
# ------------------
#
# .. lesson-diff:: dcp
#    :edit: save-shards
#    :confirmed: 5fc8f45c3eb4
#
#    **Saving.** ``dcp.save`` takes a dictionary with the same names on all ranks. The ranks agree
#    on who writes what, and each writes one file into the folder ``checkpoint_id``. The last file
#    to be written is ``.metadata``, which says where each shard is.
#
#    **Loading.** ``dcp.load`` reads into the tensors that it is given, here the shards. It looks up
#    in ``.metadata`` which shards have what this rank needs, and reads only those. So the number of
#    processes may change. A step still makes the optimizer's state first, because there must
#    be tensors to read into.
#
#    **The small file** ``dcp.pt`` still has what is not sharded, and the number of steps. It is
#    replaced after the shards are on the disk, so the folder of its step is always whole.
#    ``utils.save_checkpoint`` no longer sees the weights, so the check that they are finite moves
#    to ``_save_checkpoint``. The save first deletes the folder if an older run left one, because
#    its ``.metadata`` would make an unfinished save look whole.
#
#    **The group.** ``new_subgroups`` makes one per node. Each node saves all shards, because nodes
#    share no disk. On a shared disk, all nodes would write the same files. There, let ``self.node``
#    be ``dist.new_group(backend="gloo")``, so that all ranks write one checkpoint, and let only
#    rank 0 write the small file.
#
# Two nodes train, with two processes each. On each node are the small file and a folder per save,
# with a file per process and ``.metadata``. A lab reads ``.metadata``, here for one matrix of 48 ×
# 48:
#
# .. run::
#    :expect: (?s)checkpoint saved to dcp_1.pt.*__1_0.distcp has 24 x 48 from row 24
#    :mark: distcp has
#
#    python -m tools.series run dcp@1 --data ../LICENSE --model gpt-nano --block_size 16 --total_steps 20 --save_every 10 --log_every 20 | grep saved
#    find node1/dcp_1* node2/dcp_1* -type f
#    python docs/labs/shard_files.py node2/dcp_1.pt.shards/20 model.transformer.h.0.attn.c_proj.weight

# %% [markdown]
# Training continues meanwhile
# ----------------------------
#
# ``dcp@1`` keeps every save, and training waits for each.
#
# .. lesson-diff:: dcp
#    :edit: save-in-the-background
#    :confirmed: 2c4ad4b53674
#
#    ``async_save`` copies the shards to host memory, and returns. A thread writes the copy, so the
#    next step may already change the weights.
#
#    **Two threads per process send messages now**, the one that trains and the one that saves. In
#    one group, the messages of the two threads would mix, and the process would abort or hang. So
#    saving has its own group, over gloo.
#
#    ``_commit`` **runs in another thread.** It waits until all shards of the node are written, then
#    replaces the small file, and only then deletes the folders that are not needed any more. A kill
#    at any moment leaves the small file and the folder that it names.
#
#    ``_wait`` waits for the last save before the next one begins, and raises its error. So a save
#    that takes longer than the steps between two saves delays training. Before the first save there
#    is a task that does nothing, ``int()``, to wait for.
#
# The lab saves 511 MB from two processes, five times, and prints medians:
#
# .. run::
#    :expect: that is \d+% of it
#    :mark: training waits
#    :alone:
#
#    torchrun --standalone --nproc_per_node=2 -m docs.labs.save_wait
#
# Training waits only while the weights are checked and the shards copied.
#
# Here ``kill.py`` kills a worker when the loss of step 30 is printed, so the save of step 30 is not
# complete:
#
# .. run::
#    :expect: (?s)Resuming after step \d0.*Step +40 \| checkpoint saved
#    :show: 0 1
#    :mark: kill -9|Resuming|saved
#
#    . launch/restarts.sh; python docs/labs/kill.py 30 torchrun --standalone --nproc_per_node=2 -m parallel.dcp --data LICENSE --model gpt-nano --block_size 16 --total_steps 40 --save_every 10 --log_every 10

# %% [markdown]
# A node without shards gets them
# -------------------------------
#
# The disk of a node is lost, and an empty node takes its place. The other node has all shards, but
# under ``dcp@2`` each node reads only its own:
#
# .. run::
#    :expect: (?s)No such file or directory: 'dcp_2.pt.shards/20/.metadata'
#    :mark: No such file
#
#    python -m tools.series run dcp@2 --data ../LICENSE --model gpt-nano --block_size 16 --total_steps 20 | grep saved
#    rm -r node2
#    python -m tools.series run dcp@2 --data ../LICENSE --model gpt-nano --block_size 16 --total_steps 40 2>&1 | grep -m 1 "^node2 .*No such file"
#
# .. lesson-diff:: dcp
#    :edit: share-with-a-new-node
#    :confirmed: d0a73ac7b5cc
#
#    A node that has the folder sends its files, one by one, to the first process of each node, and
#    nodes without the folder write them. ``.metadata`` is the last, so a kill meanwhile does not
#    leave a folder that looks whole. If no node has the folder, usually because only the small file
#    was copied, the run ends with one line.
#
# Now ``node2`` is lost after the first run, and gets its shards from ``node1``. The third run
# resumes with four processes on one node, the fourth with one process. Then ``one_file.py`` makes
# one file of whole tensors, which the trainer of :doc:`5d_gpus` reads. At the end, the weights are
# those of a run without FSDP that never stopped, up to rounding:
#
# .. run::
#    :expect: mingpt.pt from once.pt: weights \d\.\de-0[678]
#    :mark: Resuming|weights
#
#    echo --model gpt-nano --block_size 16 --learning_rate 1e-3 --min_learning_rate 1e-3 > options
#    python -m tools.series run dcp $(cat options) --data ../LICENSE --total_steps 10 | grep saved
#    rm -r node2
#    python -m tools.series run dcp $(cat options) --data ../LICENSE --total_steps 20 | grep -v val
#    cp -r node2/dcp.pt* .
#    torchrun --standalone --nproc_per_node=4 -m parallel.dcp $(cat options) --data LICENSE --total_steps 30 | grep -v val
#    torchrun --standalone --nproc_per_node=1 -m parallel.dcp $(cat options) --data LICENSE --total_steps 40 | grep -v val
#    python docs/labs/one_file.py dcp.pt mingpt.pt
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --data LICENSE --total_steps 50 | grep -v val
#    torchrun --standalone --nproc_per_node=2 -m mingpt.main $(cat options) --data LICENSE --total_steps 50 --checkpoint_path once.pt | tail -n 1
#    python docs/labs/distance.py once.pt mingpt.pt

# %% [markdown]
# What it costs
# -------------
#
# - **Files.** A checkpoint is a folder now. Copy, move and rename it together with the small file.
#   Other programs want one file: ``one_file.py`` needs a host with room for the whole model.
# - **Disk and host memory**: two checkpoints on the disk during a save, and a copy of the shards in
#   memory.
# - **Trust.** DCP checks no checksums, unlike the other scripts of this series, so a damaged shard
#   is noticed only if torch cannot read it. ``.metadata`` is a pickle, which may run code: read
#   only folders that you trust.
# - **Versions.** PyTorch does not promise that another version reads the folder. For long storage,
#   keep the file of ``one_file.py``.
#
# Nothing on this page was measured on a GPU yet.

# %% [markdown]
# What could go wrong
# -------------------
#
# **The process aborts in a save, or training and saving wait for each other.** ``async_save`` was
# called without ``process_group``, so it uses the group of training.
#
# **"A CPU backend must be enabled for async save".** The group of the save is NCCL's. DCP sends
# objects from host memory, so give it a group over gloo.
#
# **"Missing key in checkpoint state_dict".** The dictionary given to ``dcp.load`` has a name that was
# not saved. For example, a save before the first step has no state of the optimizer.
#
# **The learning rate starts again.** DCP puts a loaded number into the dictionary, not into your
# variable: copy it back.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_dcp
#    :next: :doc:`parallel_tensor`, where processes share the layers themselves
#    :also: torch.distributed.checkpoint <torch.distributed.checkpoint>
#
#    You can now save in shards without waiting, and say after a kill which checkpoint is whole.
#
#    .. fold:: Why may ``dcp.pt`` not be replaced before the shards are written?
#
#       After a kill in between, it would name a folder that is not whole, and the one before could
#       already be deleted.
#
#    .. fold:: Could each rank use ``torch.save`` for its own shard?
#
#       Yes, and it could load it as well, as long as the number of ranks and the sharding stay the
#       same. ``.metadata`` is what makes another number possible.
