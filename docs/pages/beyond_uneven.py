# %% [markdown]
"""
Unequal numbers of batches, and Join
====================================
"""

# %% [markdown]
# **You will be able to** train with DDP when your ranks have different numbers of batches, and to
# choose how their last gradients are averaged.
#
# **You need** the script of :doc:`4_multinode`.
#
# ``DistributedSampler`` gives every rank equally many samples. Not all data can be divided that
# way. Each rank may read its own files, drop samples that fail a test, or read a stream. Then one
# rank runs out of batches before the others.

# %% [markdown]
# Reading unequal shares
# ----------------------
#
# To see what happens then, give the ranks unequal shares of the data:
#
# .. lesson-diff:: uneven
#    :edit: read-unequal-shares
#    :confirmed: 3e5642a62556
#
#    With two ranks, rank 0 takes the first quarter of the 2,048 samples and rank 1 takes the rest.
#    That is 16 batches of 32 and 48 batches. With three ranks, the shares are as 1 to 3 to 5.
#
#    Each rank shuffles its own share, as ``single_gpu.py`` shuffles all samples.
#
# This command makes a script of that edit alone, and runs it:
#
# .. run::
#    :expect: Received data size doesn't match expected size
#    :status: 1
#    :mark: Received data
#
#    python -m tools.series show uneven@1 > beyond/no_join.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.no_join 3 3 2>&1 | grep -o "Received data.*"
#
# Training fails in the first epoch. After its 16 batches, rank 0 calls ``all_reduce(totals)``, which
# sends two numbers. Rank 1 is in ``backward()`` of its batch 17, where DDP sends 21 gradients. The
# two messages meet. Gloo compares their sizes and aborts. For NCCL, different sizes are `undefined
# behavior, including hangs, crashes, or data corruption
# <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html>`__.

# %% [markdown]
# Answering for the finished ranks
# --------------------------------
#
# Rank 0 must take part in the all-reduces of batches 17 to 48, though it has no gradients for them.
# ``Join`` does that:
#
# .. lesson-diff:: uneven
#    :edit: answer-for-finished-ranks
#    :confirmed: 1909318b0188
#
#    ``with Join([model])`` usually surrounds the loop. A rank that reaches the end of the block
#    stays there. For each batch of another rank, it takes part in DDP's all-reduces with zeros. When
#    all ranks are done, ``Join`` broadcasts the weights of the last one.
#
#    Here the block is in a generator, so the loop keeps its indentation. When the data ends,
#    ``_batches`` reaches the end of its block, and the loop waits for it. So ``all_reduce(totals)``
#    below the loop is outside of the block, and must be: ``Join`` answers the all-reduces of DDP
#    only. If it were inside, training would hang.
#
# .. run::
#    :expect: over 2048 samples
#    :mark: Epoch  3 \| loss|weights
#
#    python -m tools.series run --probe uneven@2 3 3
#
# ``--probe`` makes each process print what it did. The loss is over all 2,048 samples, and both
# ranks end with the same weights.

# %% [markdown]
# Sharing the optimizer's state
# -----------------------------
#
# Are these the right weights? ``uneven_mean.py`` trains on the same batches in one process, and adds
# up the gradients of the two shares itself. Its step uses half of the sum, also when there is one
# batch left:
#
# .. run::
#    :expect: momenta [1-9]\.\de-01
#    :mark: stale.pt from
#
#    python docs/labs/uneven_mean.py 10 by_hand.pt
#    python -m tools.series show uneven@2 > beyond/stale.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.stale 10 10 | tail -n 1
#    python docs/labs/distance.py by_hand.pt stale.pt
#
# They are close, but this is more than rounding, and the momenta are wrong. ``Join`` makes no optimizer step on a finished rank. At the end it replaces the
# weights of rank 0, but not the momenta, which are still those of batch 16. In the next epoch, the
# two ranks make different updates from the same gradients. And rank 0 saves the checkpoint, with
# old momenta.
#
# .. lesson-diff:: uneven
#    :edit: share-the-optimizers-state
#    :confirmed: 02decc056c68
#
#    At the end of the epoch, every rank takes the optimizer's state of the last rank. That rank has
#    the largest share, so it has made all steps. If you do not know which rank has, let every rank
#    count its batches, and compare the counts with ``all_gather_object``.
#
# .. run::
#    :expect: uneven.pt from by_hand.pt: weights (0\.0e\+00|\d\.\de-(0[7-9]|[1-9]\d))
#    :mark: uneven.pt from
#
#    python docs/labs/uneven_mean.py 10 by_hand.pt
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.uneven 10 10 | tail -n 1
#    python docs/labs/distance.py by_hand.pt uneven.pt
#
# The two ranks now train exactly what one process does. A resumed run also ends like one that never
# stopped, because rank 0's checkpoint has the state of all steps:
#
# .. run::
#    :expect: (?m)^equal, bit for bit
#    :mark: ^equal|Resuming
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.uneven 5 5 | tail -n 1
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.uneven 10 5 | grep -v loss
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 -m beyond.uneven 10 10 --checkpoint_path whole.pt | tail -n 1
#    python docs/labs/same.py uneven.pt whole.pt

# %% [markdown]
# Two kinds of mean
# -----------------
#
# From batch 17 on, only rank 1 has a gradient. By what should DDP divide it? By default,
# ``Join`` keeps the number of all ranks, here 2. The other choice is the number of ranks that still
# have a batch. ``Join([self.model], divide_by_initial_world_size=False)`` makes it. The ``--active``
# of ``uneven_mean.py`` does the same by hand:
#
# .. run::
#    :expect: active_2.pt from by_hand.pt: weights (0\.0e\+00|\d\.\de-(0[7-9]|[1-9]\d))
#    :mark: loss|active_2.pt from
#
#    sed 's/Join(.self.model.)/Join([self.model], divide_by_initial_world_size=False)/' beyond/uneven.py > beyond/active.py
#    python docs/labs/forks.py 2 beyond/uneven.py beyond/active.py 10 10 | grep -E "ranks|10 . loss"
#    python docs/labs/uneven_mean.py 10 by_hand.pt --active
#    python docs/labs/distance.py by_hand.pt active_2.pt
#
# - **By all ranks** (the default): every sample counts the same in an epoch. The last steps are
#   smaller, because fewer samples are in them.
# - **By the remaining ranks**: each step is a mean over its own samples, as if the last part of the
#   epoch ran on fewer GPUs. The samples in these steps count more: here twice as much.
#
# In this example the second one learns faster per epoch, because two thirds of its steps are twice
# as large. If only a few steps of an epoch are uneven, the difference is small. Then keep the
# default.

# %% [markdown]
# What it costs
# -------------
#
# - **Waiting.** Rank 0 computes in 16 of 48 steps, and waits in the others. Balance the data if you
#   can.
# - **A message per step.** Every ``forward()`` begins with an all-reduce of one number, which tells
#   the finished ranks that another batch comes.
# - **Nothing else in the loop.** ``Join`` answers only for what is in its list, here DDP. Any other
#   :term:`collective` still hangs or fails, for example one of ``SyncBatchNorm``. If you have one, set ``throw_on_early_termination=True``. Then all ranks raise
#   an exception when the first one is done, and the epoch ends there on all of them.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_uneven
#    :next: :doc:`5_minGPT`
#
#    You can now train on unequal shares, choose the mean, and show that the ranks agree in their
#    weights and in their optimizer's state.
#
#    .. fold:: You use Adam with ``Join`` and share no optimizer state. How do you notice?
#
#       Hardly. The weights agree after each epoch, and the loss falls. Within an epoch the ranks
#       make different updates. A resumed run differs from one that never stopped.
#
#    .. fold:: Two ranks have 16 and 48 batches. How much does a sample in step 40 count, compared with one in step 10?
#
#       By default equally: both gradients are divided by 32 samples and 2 ranks. With
#       ``divide_by_initial_world_size=False`` twice as much, because step 40 divides by one rank.
#
#    .. fold:: Your ranks have 1,000 and 1,001 batches. What is simpler than ``Join``?
#
#       Stop all ranks after 1,000. One batch in two thousand is lost per epoch. If the order is
#       shuffled, it is another one each time.
