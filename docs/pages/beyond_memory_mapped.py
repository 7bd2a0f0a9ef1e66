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
# Real data are slower than the data of this series: images are decoded, and text is tokenised.
# ``slow_data.py`` simulates such data. If a script imports it, each sample takes a millisecond:
#
# .. run::
#    :expect: Epoch +2 \| loss
#    :show: 0 3
#    :mark: samples/s
#
#    sed 's/^import utils/&, docs.labs.slow_data/' multigpu.py > slow.py
#    python slow.py 2 2
#
# Without the import this script is many times faster (:doc:`2_multigpu`). But the log only shows
# the speed. It does not say whether the model or the data set is the slow part.

# %% [markdown]
# Reporting the share of computing
# --------------------------------
#
# .. lesson-diff:: memory_mapped
#    :edit: report-the-computing-share
#    :confirmed: 7b064973afd2
#
#    The ``for`` loop asks the loader for a batch and waits until it comes. ``asked`` is when it
#    asks, so the first line in the loop adds the time of this wait. All other time counts as
#    computing.
#
#    In each step, ranks also wait for each other in DDP's all-reduce. That counts as computing, too.
#    So if only rank 1 has slow data, rank 0 seems busy. Therefore ``MAX`` takes the time of the rank
#    that has waited longest for its data.
#
#    ``waited.item()`` waits for the device, as ``utils.report`` does, so on a GPU the clock is read
#    after the epoch's work. While Python waits for a batch, a GPU may still compute the last one.
#    So on GPUs the true share is at least the printed one.
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
# Now the log shows the cause: nearly all of the time goes into waiting for data. RETURNN prints
# such a number at the end of each epoch, as ``99.3% computing time``. Its `documentation
# <https://returnn.readthedocs.io/en/latest/advanced/multi_gpu.html>`__ says that below 90% or so
# you wasted time elsewhere, for example in loading the data.

# %% [markdown]
# Converting once
# ---------------
#
# Each epoch decodes the same samples again. It is enough to do it once, and to keep the result.
# RETURNN recommends this, too: ``tools/hdf_dump.py`` converts any data set to an HDF file, and
# ``HDFDataset`` with ``cache_size = 0`` reads it. Here PyTorch's own file format is enough:
#
# .. lesson-diff:: memory_mapped
#    :edit: convert-once
#    :confirmed: c6010ffdac00
#
#    - **A batch of all samples.** ``convert`` asks a ``DataLoader`` for one batch that has the whole
#      data set. It is a list of two tensors, features and targets. So a data set can be converted
#      if the loader can make batches of it, and if its samples are tuples, such as an image and a
#      label.
#    - **By one process.** ``run_once_per_node`` calls ``convert`` in one process per :term:`node`,
#      while the other ranks wait. It is imported from the GPT of this series, and you can copy its
#      file, ``mingpt/once.py``. This script has one node, but the two lines work on several: nodes
#      share no disk, so each makes its own file. If two nodes do share a disk, both write the same
#      content, and the second replaces the first.
#    - **Whole or not at all.** ``utils.write`` saves the tensors under another name, and then
#      renames the file. So at no moment is an unfinished file called ``train_data.mmap``, even if
#      the process is killed. (A kill may leave a hidden file ``.train_data.mmap.*.tmp`` for you to
#      delete.)
#    - **Checked.** ``torch.save`` stores a checksum with each tensor. ``utils.is_whole`` compares
#      them. If a bit differs, the file is made again, and replaced. So give it a name that no other
#      program uses. The check reads the whole file, in one process, at each start.
#    - **Mapped.** With ``mmap=True``, ``torch.load`` reads no tensor. The system reads a part of the
#      file when a sample needs it, and keeps it in memory once for all processes of the node.
#      ``TensorDataset`` returns a sample as a tuple of rows, as the old data set does.
#
#    ``convert`` comes before ``manual_seed``, because a ``DataLoader`` draws a random number, and
#    only one rank makes one here.
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
# One process converts, and no epoch waits for the slow data. A second start finds the file and
# converts nothing. It trains the same model as the script before, bit for bit:
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
#
# What is left of the waiting is the loader, which stacks 32 rows into a batch.

# %% [markdown]
# What could go wrong
# -------------------
#
# **The conversion fails.** A limit on the size of files simulates a full disk:
#
# .. run::
#    :expect: OSError: \[Errno 27\] File too large
#    :status: 1
#    :show: 3 2
#    :mark: OSError
#
#    ulimit -f 100; python -m beyond.memory_mapped 3 3
#
# ``run_once_per_node`` gives the error of one process to all ranks. So all of them end at once. If
# they waited for the file instead, they would wait forever. There is no file left, and no part of
# one. A sample that raises an exception ends the run in the same way. (The traceback ends in
# ``run_once_per_node``: between processes, an exception travels without its traceback.)
#
# .. fold:: How ``run_once_per_node`` does it
#
#    .. literalinclude:: ../../mingpt/once.py
#       :pyobject: run_once_per_node
#
#    .. literalinclude:: ../../mingpt/once.py
#       :pyobject: _call
#
#    The ranks wait in ``all_gather_object``, and it gives each the error, or None, of every other.
#    No rank returns before all have come. So no rank opens the file before it is complete.
#
# **The data have changed.** The file is found by its name alone. If you change the data set, or how
# it is decoded, change the name too, or remove the file. (The GPT of this series makes the name from
# a hash of its text.)
#
# **The data do not fit into memory.** ``convert`` holds the samples and their batch at the same time,
# so it needs twice the size of the data. Training does not: pages of the file can leave memory at
# any time. Convert large data in parts, with a name for each part, and join them:
#
# .. code-block:: python
#
#    parts = []
#    for start in range(0, len(dataset), SIZE):
#        end, path = min(start + SIZE, len(dataset)), f"train_data.{start}.mmap"
#        run_once_per_node(convert, Subset(dataset, range(start, end)), path)
#        parts.append(TensorDataset(*torch.load(path, mmap=True)))
#    dataset = ConcatDataset(parts)
#
# **The samples have different sizes.** Then they do not stack. Pad them, or store all in one long
# tensor, and beside it where each begins.
#
# **Each sample is changed at random**, as by cropping. If you convert after the change, every epoch
# sees the same crops. Convert the decoded image, and crop it when you read it.
#
# There is a smaller remedy that needs no file: ``DataLoader(num_workers=…)`` decodes the next
# batches in other processes while the model computes. It helps if the machine has cores to spare,
# and it decodes every sample again in each epoch.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_memory_mapped
#    :next: :doc:`5a_exact`, whose log has the same number
#
#    You can now tell slow data from a slow model, and convert the data once per node.
#
#    .. fold:: Rank 3 of 8 has slow data, and the log prints ``computing 45% of the time``. Do the other ranks lose time, too?
#
#       Yes. In each step, all ranks wait for rank 3 in the all-reduce, so 55% of the time is lost on
#       all of them. Without ``MAX``, rank 0 would report about 100%, because its own data are fast.
#
#    .. fold:: Why not let every rank check whether the file exists, and convert if it does not?
#
#       All ranks of a node check at the same time, and all find none. So all convert, as slowly as
#       before and with as many copies in memory. The result would still be whole, because each
#       writes under another name.
#
#    .. fold:: Four processes map a file of 10 GB. How much memory does this take?
#
#       At most 10 GB on the node, not 40. They share the pages that have been read, and the system
#       can drop those when it needs the memory. If each loaded the file without ``mmap=True``, each
#       would have its own 10 GB.
