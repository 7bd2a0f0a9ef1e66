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
# ``DistributedSampler`` gives every rank equally many samples, but not all data can be divided that
# way. For example, each rank may read its own files. Then one rank runs out of batches before the
# others.

# %% [markdown]
# Reading unequal shares
# ----------------------
#
# To see the failure, give the ranks unequal shares:
#
# .. lesson-diff:: uneven
#    :edit: read-unequal-shares
#    :confirmed: 1a2310caeeea
#
#    With two ranks, rank 0 takes the first quarter of the 2,048 samples, which is 16 batches of 32,
#    and rank 1 takes the other 48 batches. Each rank shuffles its own share.
#
# With only this edit, training fails in the first epoch:
#
# .. run::
#    :expect: Received data size doesn't match expected size
#    :status: 1
#    :mark: Received data
#
#    python -m tools.series show uneven@1 > beyond/no_join.py
#    torchrun --standalone --nproc_per_node=2 -m beyond.no_join 3 3 2>&1 | grep -o "Received data.*"
#
# After its 16 batches, rank 0 sends two numbers in ``all_reduce(totals)``, while rank 1 sends 21
# gradients in ``backward()`` of its batch 17. gloo aborts, because the sizes differ. For NCCL,
# different sizes are `undefined behavior, including hangs, crashes, or data corruption
# <https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/collectives.html>`__.

# %% [markdown]
# Answering for the finished ranks
# --------------------------------
#
# Rank 0 must take part in the all-reduces of batches 17 to 48, although it has no gradients for
# them. ``Join`` does that:
#
# .. lesson-diff:: uneven
#    :edit: answer-for-finished-ranks
#    :confirmed: 1909318b0188
#
#    A rank that reaches the end of the ``with Join`` block stays there, and takes part in DDP's
#    all-reduces with zeros, once per step of the ranks that still have batches. When all ranks are
#    done, ``Join`` broadcasts the weights of the last one.
#
#    ``Join`` usually surrounds the loop: ``with Join([model]):``. Here it is in a generator, so the
#    loop keeps its indentation. ``all_reduce(totals)`` must be outside of the block, because for a
#    finished rank ``Join`` takes part in DDP's all-reduces only.
#
# .. run::
#    :expect: over 2048 samples
#    :mark: Epoch  3 \| loss|weights
#
#    python -m tools.series run --probe uneven@2 3 3
#
# The loss is that of all 2,048 samples, and the weights are equal. (``all samples`` means all of
# this rank's own.)

# %% [markdown]
# Sharing the optimizer's state
# -----------------------------
#
# Are these the right weights? ``uneven_mean.py`` trains on the same batches in one process. Each
# step uses half of the sum of the two shares' gradients, even when one share has ended:
#
# .. run::
#    :expect: momenta [1-9]\.\de-01
#    :mark: stale.pt from
#
#    python docs/labs/uneven_mean.py 10 by_hand.pt
#    python -m tools.series show uneven@2 > beyond/stale.py
#    torchrun --standalone --nproc_per_node=2 -m beyond.stale 10 10 | tail -n 1
#    python docs/labs/distance.py by_hand.pt stale.pt
#
# The weights differ by more than rounding, and the momenta are wrong. ``Join`` makes no optimizer
# step on a finished rank. At the end, it gives rank 0 the weights of a rank that finished last. The
# momenta of rank 0 are still those of batch 16. So in the next epoch, the two ranks make different
# updates from the same gradients, and rank 0 saves old momenta.
#
# .. lesson-diff:: uneven
#    :edit: share-the-optimizers-state
#    :confirmed: 02decc056c68
#
#    Every rank takes the optimizer's state of the highest rank, which has the largest share and
#    made all steps. If you do not know which rank that is, let the ranks compare their numbers of
#    batches with ``all_gather_object``.
#
# .. run::
#    :expect: uneven.pt from by_hand.pt: weights (0\.0e\+00|\d\.\de-(0[7-9]|[1-9]\d))
#    :mark: uneven.pt from
#
#    python docs/labs/uneven_mean.py 10 by_hand.pt
#    torchrun --standalone --nproc_per_node=2 -m beyond.uneven 10 10 | tail -n 1
#    python docs/labs/distance.py by_hand.pt uneven.pt
#
# The two ranks now train as one process does.

# %% [markdown]
# Two kinds of mean
# -----------------
#
# From batch 17 on, only rank 1 has a gradient. By default, DDP divides it by the number of all
# ranks, here 2. With ``Join([self.model], divide_by_initial_world_size=False)``, DDP divides by the
# number of ranks that still have a batch, as ``--active`` does in ``uneven_mean.py``. ``forks.py``
# trains with each divisor on two ranks:
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
# - **By all ranks** (the default): every sample counts the same in an epoch.
# - **By the remaining ranks**: each step averages over the batches that there are, so a sample of a
#   late step counts more, here twice as much.
#
# Here the second way learns faster per epoch, because two thirds of its steps are twice as large.
# If only a few steps are uneven, keep the default.

# %% [markdown]
# What it costs
# -------------
#
# - **Waiting.** Rank 0 waits in 32 of 48 steps. Balance the data if you can.
# - **Nothing else in the loop.** Any :term:`collective` of something that ``Join`` does not know,
#   for example of ``SyncBatchNorm``, still hangs or fails. If you have one, set
#   ``throw_on_early_termination=True``: when the first rank is done, all ranks raise an exception,
#   and you end the epoch there.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_uneven
#    :next: :doc:`5_minGPT`
#
#    You can now train on unequal shares, and choose the mean.
#
#    .. fold:: Two ranks have 16 and 48 batches. How much does a sample in step 40 count, compared with one in step 10?
#
#       By default equally: both gradients are divided by 32 samples and 2 ranks. With
#       ``divide_by_initial_world_size=False`` twice as much, because step 40 divides by one rank.
#
#    .. fold:: Your ranks have 1,000 and 1,001 batches. What is simpler than ``Join``?
#
#       Stop all ranks after 1,000, and lose one batch in two thousand per epoch.
