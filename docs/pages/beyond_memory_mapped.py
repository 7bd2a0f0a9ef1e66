# %% [markdown]
"""
Memory-mapped data, converted once
==================================
"""

# %% [markdown]
# **You will be able to** see that training waits for its data, and to convert any slow data set,
# once, to a file that all processes of a node read fast.
#
# **You need** the script of :doc:`2_multigpu`.
#
# Real data are slower than the data of this series, because images must be decoded and text
# tokenised. In a script that imports ``slow_data.py``, each sample takes a millisecond:
#
# .. run::
#    :expect: Epoch +2 \| loss
#    :show: 0 3
#    :mark: samples/s
#
#    sed 's/^import utils/&, docs.labs.slow_data/' multigpu.py > slow.py
#    python slow.py 2 2
#
# The log shows only the speed, not whether the model or the data set is slow.

# %% [markdown]
# Reporting the share of computing
# --------------------------------
#
# .. lesson-diff:: memory_mapped
#    :edit: report-the-computing-share
#    :confirmed: 7b064973afd2
#
#    The ``for`` loop asks the loader for a batch and waits until it comes. ``asked`` is the time at
#    which it asks, so the first line in the loop adds the wait. All other time counts as computing.
#
#    So *computing* here means not waiting for data: it includes the wait for other ranks in DDP's
#    all-reduce. If only rank 1 has slow data, rank 0 seems busy. Therefore the all-reduce of
#    ``waited`` takes the ``MAX``: the longest wait of any rank.
#
# The same slow data, after this edit:
#
# .. run::
#    :expect: (?s)computing [1-4]?\d% .*Converting.*computing \d+% .*equal, bit for bit
#    :lines: 1 2
#    :mark: computing
#
#    python -m tools.series show memory_mapped@1 | sed 's/^import utils/&, docs.labs.slow_data/' > slow_before.py
#    python slow_before.py 3 3
#    sed 's/^import utils/&, docs.labs.slow_data/' beyond/memory_mapped.py > slow_after.py
#    python slow_after.py 3 3
#    python slow_after.py 3 3
#    python docs/labs/same.py slow_before.pt slow_after.pt
#
# Now the log shows the cause: nearly all of the time goes into waiting for data. If the share is
# far below 90 %, look at the data first. A high share proves little: see :doc:`where_the_time_goes`.

# %% [markdown]
# Converting once
# ---------------
#
# Each epoch decodes the same samples again. Decode them once, and keep the result in a file:
#
# .. lesson-diff:: memory_mapped
#    :edit: convert-once
#    :confirmed: c6010ffdac00
#
#    - **A batch of all samples.** ``convert`` asks a ``DataLoader`` for one batch with the whole
#      data set: a list of two tensors, features and targets. This works for any data set of
#      tuples of tensors, such as an image and a label, if all samples have the same shapes.
#    - **By one process.** ``run_once_per_node`` calls ``convert`` in one process per :term:`node`,
#      while the other ranks wait. You can copy its file, ``mingpt/once.py``. If two nodes share a
#      disk, both write the same content, and the second file replaces the first.
#    - **Whole or not at all.** ``utils.write`` saves the tensors under another name, then renames
#      the file. So ``train_data.mmap`` is never unfinished.
#    - **Checked.** ``torch.save`` stores a checksum with each tensor. ``utils.is_whole`` reads the
#      whole file at each start and computes the checksums again. If one differs, ``convert``
#      replaces the file, even if another program wrote it, so choose a name that no other program
#      uses.
#    - **Mapped.** With ``mmap=True``, ``torch.load`` reads no tensor. The system reads a part of
#      the file when a sample needs it, and keeps it in memory once for all processes of the node.
#
#    ``convert`` comes before ``manual_seed``, because its ``DataLoader`` advances the random
#    generator, on one rank only.
#
# .. run::
#    :expect: (?s)computing [1-4]?\d% .*Converting.*computing \d+% .*equal, bit for bit
#    :lines: 3 4
#    :mark: Converting|computing
#
#    python -m tools.series show memory_mapped@1 | sed 's/^import utils/&, docs.labs.slow_data/' > slow_before.py
#    python slow_before.py 3 3
#    sed 's/^import utils/&, docs.labs.slow_data/' beyond/memory_mapped.py > slow_after.py
#    python slow_after.py 3 3
#    python slow_after.py 3 3
#    python docs/labs/same.py slow_before.pt slow_after.pt
#
# One process converts, and no epoch waits for the slow data. A second start converts nothing, and
# trains the same model as the script before this edit:
#
# .. run::
#    :expect: (?s)computing [1-4]?\d% .*Converting.*computing \d+% .*equal, bit for bit
#    :lines: 5 6
#    :mark: bit for bit
#
#    python -m tools.series show memory_mapped@1 | sed 's/^import utils/&, docs.labs.slow_data/' > slow_before.py
#    python slow_before.py 3 3
#    sed 's/^import utils/&, docs.labs.slow_data/' beyond/memory_mapped.py > slow_after.py
#    python slow_after.py 3 3
#    python slow_after.py 3 3
#    python docs/labs/same.py slow_before.pt slow_after.pt

# %% [markdown]
# What could go wrong
# -------------------
#
# **The conversion fails.** A limit on the size of files simulates a full disk:
#
# .. run::
#    :expect: OSError: \[Errno 27\] File too large
#    :status: 1
#    :show: 0 1
#    :mark: OSError
#
#    rm -f train_data.mmap
#    (ulimit -f 100; python -m beyond.memory_mapped 3 3)
#
# ``run_once_per_node`` raises the error of one process on all ranks, so all of them end at once,
# instead of waiting forever for the file. No partial file is left.
#
# **The data have changed.** The file is found by its name alone, so if you change the data set, or
# how it is decoded, change the name too.
#
# **The data do not fit into memory.** ``convert`` holds the samples and their batch, so it needs
# twice the size of the data. Convert large data in parts, a ``Subset`` and a file each, and join them
# with ``ConcatDataset``.
#
# **Samples are changed at random**, for example cropped. If you convert the crops, every epoch sees
# the same ones. So convert the decoded image, and crop it when you read it.
#
# A smaller remedy needs no file: ``DataLoader(num_workers=…)`` decodes the next batches in other
# processes while the model computes, if the machine has cores to spare.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_memory_mapped
#    :next: :doc:`5a_exact`, whose log has this share, too
#
#    You can now tell slow data from a slow model, and convert the data once.
#
#    .. fold:: Rank 3 of 8 has slow data, and the log prints ``computing 45% of the time``. Do the other ranks lose time, too?
#
#       Yes. In each step, all ranks wait for rank 3 in the all-reduce, so all lose 55% of the time.
#
#    .. fold:: Four processes map a file of 10 GB. How much memory does this take?
#
#       At most 10 GB on the node, not 40, because they share the pages that have been read. The
#       system can drop those when it needs the memory.
