# %% [markdown]
"""
ZeRO: sharding the optimizer's state
====================================
"""

# %% [markdown]
# **You will be able to** divide the optimizer's state among your GPUs, save it in one file, and say
# what it costs.
#
# **You need** the script of :doc:`4_multinode`.
#
# DDP keeps a copy of the weights, the gradients and the optimizer's state on every rank. With SGD
# and momentum, the state is as large as the weights, and with AdamW twice as large.
#
# ZeRO (`Rajbhandari et al. 2020 <https://arxiv.org/abs/1910.02054>`__) removes the copies. In its
# first stage, each rank updates a part of the weights, and holds the optimizer's state for that
# part only. PyTorch has this stage as ``ZeroRedundancyOptimizer``. :doc:`parallel_zero` writes all
# three stages by hand.
#
# If you count the weight and its gradient too, AdamW needs four numbers per weight under DDP, and
# 2 + 2/8 = 2.25 with ZeRO on 8 ranks.

# %% [markdown]
# Sharding the state
# ------------------
#
# .. lesson-diff:: zero
#    :edit: shard-the-state
#    :confirmed: dcdd8249b0be
#
#    **The constructor** assigns each parameter to one rank, and creates an SGD optimizer for the
#    parameters of this rank. ``step()`` updates these parameters, then every rank broadcasts its
#    own to the others. ZeRO needs numpy.
#
#    **The group.** ``new_subgroups`` makes one :term:`process group` per :term:`node`, and ZeRO
#    divides the state within it. By default, ZeRO divides it among all ranks. That saves more
#    memory, but each step broadcasts weights between the nodes, and only rank 0 gets the whole
#    state to save.
#
#    **The device.** ``.to`` moves the model to the GPU before ZeRO sees it, because ZeRO sends from
#    the device of the first parameter, and NCCL cannot send from the CPU.
#
#    **The checkpoint.** ``consolidate_state_dict`` collects the state of a group in CPU memory, on
#    the group's first rank, which saves. All ranks must take part, so the call is above the
#    ``return`` in ``_save_checkpoint``.
#
# .. run::
#    :expect: state of 20 numbers
#    :mark: state of
#
#    python -m tools.series run --probe zero@1 3 3
#
# ZeRO never splits a tensor: one rank holds the momentum of the 20 weights, the other that of the
# bias.
#
# ``forks.py`` trains with ZeRO and with plain SGD on two ranks. Weights and checkpoint are equal:
#
# .. run::
#    :expect: (?m)^equal, bit for bit
#    :show: 0 3
#    :mark: ^equal|momentum
#
#    python docs/labs/forks.py 2 beyond/zero.py multinode.py 10 10 | grep saved
#    python docs/labs/same.py zero_2.pt multinode_2.pt
#
# So each script can resume from the other's file. The number of processes may change, because each
# rank receives the whole state and takes its own part.
#
# If you forget to consolidate, rank 0 fails at the first save:
#
# .. run::
#    :expect: RuntimeError: Optimizer state has not been consolidated
#    :status: 1
#    :mark: not been consolidated
#
#    sed '/consolidate_state_dict/d' beyond/zero.py > beyond/forgotten.py
#    torchrun --standalone --nproc_per_node=2 -m beyond.forgotten 3 3 2>&1 | grep RuntimeError | tail -n 1

# %% [markdown]
# Keeping one copy after a resume
# -------------------------------
#
# The second command resumes from the checkpoint of the first:
#
# .. run::
#    :expect: of 40 numbers
#    :show: 0 4
#    :mark: Resuming|state of
#
#    python -m tools.series run zero@1 1 1 | tail -n 1
#    python -m tools.series run --probe zero@1 2 1
#
# Now the probe counts twice as much: 40 numbers and 2. ``load_state_dict`` puts a rank's part into
# the SGD optimizer inside ZeRO, whose ``step()`` uses it. It also puts the part into ZeRO's own
# ``state``, which ``step()`` never uses. On the CPU the two share their memory. On a GPU, by the
# source of PyTorch 2.13, they would be separate copies, so with two GPUs a resumed run would save
# no memory.
#
# .. lesson-diff:: zero
#    :edit: keep-one-copy
#    :confirmed: 07ac08c99fd8
#
#    Neither ``step()`` nor ``state_dict()`` needs ZeRO's own ``state``, so clear it.
#
# .. run::
#    :expect: of 20 numbers
#    :show: 0 4
#    :mark: Resuming|state of
#
#    python -m tools.series run zero 1 1 | tail -n 1
#    python -m tools.series run --probe zero 2 1

# %% [markdown]
# What it costs
# -------------
#
# - **Messages.** DDP's :term:`all-reduce` sends and receives about two numbers per weight on each
#   rank (:doc:`1a_speed`). ZeRO adds half as much, because it then broadcasts each updated weight.
#   This comes after ``backward()``, which cannot hide it.
# - **Saving.** ``consolidate_state_dict`` sends every part but the first rank's to all ranks of the
#   node, although only the first keeps them. On GPUs these messages take GPU memory.
# - **What it leaves.** Every rank still holds all weights and all gradients. ZeRO's second stage
#   also divides the gradients, and the third also the weights. PyTorch has the third stage as
#   ``fully_shard`` (:doc:`parallel_fsdp`).

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_zero
#    :next: :doc:`5_minGPT`
#
#    You can now divide the optimizer's state among ranks with nine changed lines, and show that the
#    training and its checkpoint stay the same.
#
#    .. fold:: You train 1 billion weights with AdamW on 4 GPUs. How much memory does ZeRO save on each?
#
#       The state has 2 billion numbers, 8 GB in fp32. Each GPU holds a quarter, 2 GB, so ZeRO saves
#       6 GB.
#
#    .. fold:: Your model has one very large embedding and many small layers. Does ZeRO divide its state well?
#
#       No. One rank holds all of the embedding's state, because ZeRO never splits a tensor.
#       ``fully_shard`` splits each parameter.
