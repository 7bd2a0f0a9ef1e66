# %% [markdown]
"""
A seed per rank instead of shards
=================================
"""

# %% [markdown]
# **You will be able to** distribute data that you cannot divide into shards, and to say how much of
# it an epoch uses.
#
# **You need** the script of :doc:`4_multinode`.

# %% [markdown]
# Drawing from all data
# ---------------------
#
# ``DistributedSampler`` makes shards: all ranks compute the same order of all samples, and each
# rank takes its own positions. So all ranks must know how many samples there are, and where each
# one is. In a *stream*, data arrive one after the other, so ranks know neither. Then each rank can
# draw from all data by itself. The script draws from the same 2,048 samples as before, so that we
# can count what is used twice:
#
# .. lesson-diff:: random_seed_offset
#    :edit: draw-from-all-data
#    :confirmed: 79d0619736c1
#
#    :torch:`torch.utils.data.RandomSampler` shuffles all 2,048 samples and stops after ``share`` of
#    them, so an epoch has as many steps as before.
#
#    The sampler has its own random generator, so that the order depends only on the epoch.
#
# .. run::
#    :expect: (?s)first (\d+)\n.*first \1\n
#    :mark: first
#
#    python -m tools.series run --probe random_seed_offset@1 3 3
#
# ``first`` is the index of the first sample of the last epoch. It is the same on both ranks, and so
# are the indices of all other samples. Each epoch uses only half of the data.

# %% [markdown]
# A seed per rank
# ---------------
#
# The ranks need different seeds, in every epoch:
#
# .. lesson-diff:: random_seed_offset
#    :edit: offset-the-seed
#    :confirmed: dacdc72fe298
#
#    From epoch to epoch the seed grows by the number of processes, from rank to rank by one, so no
#    two ranks, and no two epochs, share a seed. The shorter ``epoch + rank`` would give rank 0 the
#    order that rank 1 had in the epoch before. A resumed training draws the same samples as an
#    uninterrupted one.
#
# .. run::
#    :expect: (?s)first (\d+)\n.*first (?!\1\n)
#    :mark: first
#
#    python -m tools.series run --probe random_seed_offset 3 3

# %% [markdown]
# How much of the data an epoch uses
# ----------------------------------
#
# With shards, every sample is used once. Of N independent ranks, each leaves out a given sample
# with a chance of 1 − 1/N. All of them leave it out with the N-th power of this chance, so the
# share of the data that an epoch uses is
#
#    1 − (1 − 1/N)\ :sup:`N`
#
# ``seen.py`` trains for 20 epochs with a given script, and counts how often each sample is read:
# on four ranks with shards and with one seed for all ranks, then with this lesson's script on 1, 2,
# 4 and 8 ranks:
#
# .. run::
#    :expect: (?s)seen 100.0%.*seen 25.0%.*s 1 . seen 100.0%.*s 2 . seen 7[45]\..*s 4 . seen 6[89]\..*s 8 . seen 6[56]\.
#    :mark: seen
#
#    torchrun --standalone --nproc_per_node=4 docs/labs/seen.py multinode
#    sed 's/ + dist.get_rank()  # never twice//' beyond/random_seed_offset.py > one_seed.py
#    torchrun --standalone --nproc_per_node=4 docs/labs/seen.py one_seed
#    for n in 1 2 4 8; do torchrun --standalone --nproc_per_node=$n docs/labs/seen.py beyond.random_seed_offset; done
#
# ``seen`` is measured. ``independent draws`` is the formula, which approaches 1 − 1/e, or 63.2 %,
# as the number of ranks grows. ``more than once`` is the share of the samples that an epoch uses
# several times. With one seed, all four ranks use the same quarter, so each of its samples is used
# four times.

# %% [markdown]
# When that is fine
# -----------------
#
# A sample that this epoch leaves out may come in the next. After eight epochs on two processes,
# both scripts have about the same loss:
#
# .. run::
#    :expect: (?s)multinode: Epoch 8 . loss 0\.(09|10).*random_seed_offset: Epoch 8 . loss 0\.(09|10)
#
#    echo multinode: $(torchrun --standalone --nproc_per_node=2 multinode.py 8 8 | grep "8 | loss")
#    echo random_seed_offset: $(torchrun --standalone --nproc_per_node=2 -m beyond.random_seed_offset 8 8 | grep "8 | loss")
#
# - **It is fine for training** on a stream, or on so much data that a run uses only a part.
# - **It is wrong for validation.** A mean over all samples needs each of them exactly once.
# - **It gives up** :term:`parity`. Two processes draw other samples than one, so comparing their
#   weights cannot test an edit. Test it with shards first.
# - **It gains nothing here**, because these data are in memory. With your own stream, keep only the
#   second edit: seed the stream's shuffling with the epoch *and* the rank.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_random_seed_offset
#    :next: :doc:`5a_exact`, whose loader makes a step's data from the seed and the step's number
#
#    You can now let ranks draw independently, say how much of the data they use, and notice when
#    they draw the same.
#
#    .. fold:: You forget the rank in the seed, with 8 processes. How does it show?
#
#       Hardly, because the loss falls. But all ranks compute the same gradient, so eight processes
#       train as one does on an eighth of the data per epoch. Print the first index on every rank,
#       as the probe does.
#
#    .. fold:: Which share of the data has not been used after 3 epochs with 2 ranks?
#
#       One epoch leaves out a quarter. The epochs are independent, so three leave out
#       (1/4)\ :sup:`3`, which is 1.6 %.
