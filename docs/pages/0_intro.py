# %% [markdown]
"""
Introduction
============
"""

# %% [markdown]
# This series begins with a training script for one device and ends with one that trains on several
# machines and survives the loss of any process that trains. In between lie a few small edits. Each
# page shows the lines that change, says why, and shows what breaks without them.
#
# **You will be able to** read the four scripts of the series line by line, and to make the same
# edits in a training script of your own.
#
# **You need** Python 3.11 or newer and an ordinary PyTorch training loop in your head: model,
# loss, ``backward()``, optimizer. No GPU: everything here runs on a laptop, and unchanged on a
# machine with GPUs.
#
# The start
# ---------
#
# This is the script that everything else grows out of. It trains a linear model on 2,048 samples,
# on one device, for 50 epochs, and saves a :term:`checkpoint` every 10:
#
# .. run::
#    :expect: ^Epoch 50 \| loss 0\.028
#    :show: 4 2
#
#    {single_gpu}
#
# The samples follow a linear law, with noise added that is uniform in ±0.3. Its variance, 0.3² / 3 =
# 0.03, is about the least loss that a model can have (in these 2,048 samples it happens to be a
# little less), and the loss gets there:

# %%
import lab

log = lab.run("python single_gpu.py 50 10")
losses = [loss for _, loss, _, _ in lab.epochs(log)]

figure, axes = lab.picture(f"The loss falls from {losses[0]:.2f} to {losses[-1]:.4f} in 50 epochs.")
axes.plot(range(1, 51), losses)
axes.axhline(0.3**2 / 3, color=lab.INK, linestyle=":", linewidth=1)
axes.annotate("noise of the data: 0.3² / 3", (50, 0.3**2 / 3), (50, 0.034), ha="right")
axes.set(xlabel="epoch", ylabel="loss", yscale="log", title="single_gpu.py")

# %% [markdown]
# That the loss really falls matters more than it seems. A distributed script can be wrong in ways
# that raise no error: it trains on half of the data, or on the same half twice, or each process
# trains a model of its own. A loss that is real, and the same whatever the number of processes if
# they take equally many samples in a step together, is how the later pages show that nothing of
# that kind happens.
#
# The map
# -------
#
# Each script is its parent plus one idea. The third column counts the lines that are added and
# removed, without docstrings and blank lines.
#
# .. lessons-table::
#
# (A *node* is one machine of several.)
#
# :doc:`1_theory` comes before the first edit: it builds by hand what ``DistributedDataParallel``
# does. Words that are new are explained where they first appear, and again in the
# :doc:`glossary`. Error messages are collected in :doc:`symptoms`.
#
# How to read a page
# ------------------
#
# What changes is shown like this. Lines marked ``+`` are new, lines marked ``−`` are gone, changed
# words are marked within a line, and the unchanged rest unfolds at a click. *Copy* takes the new
# code only. On a wide screen the two scripts can be put side by side. A section marks the lines of
# one edit only. New lines of the other edits stand in it unmarked: a script runs when all edits of
# its page are made.
#
# Every command on these pages was run while the page was built, unless the line below it says "not
# run here", and what is printed is what it printed. Each block was run in a fresh copy of the
# scripts. If you type them all in one folder, first move away what an earlier block has left (files
# ``*.pt``, folders ``node0`` and ``node1``), since some scripts resume from what they find. Run it
# yourself: ``make run`` in the repository sets everything up, and ``source .venv/bin/activate``
# lets you type the commands as they stand here. Each page can also be taken along as a notebook,
# with the link at its end; it brings its scripts with it.
#
# .. not-run:: it would set up a second environment while this one builds the page
#
#    make run
#
# The parts of the script
# -----------------------
#
# Every script of the series has the same parts in the same order, so that you always know where to
# look:
#
# ``Trainer``
#    holds the model and the loop. ``_run_batch`` is one step: forward, backward, update.
#    ``_run_epoch`` goes once through the data and reports the loss, ``_save_checkpoint`` writes
#    model, optimizer and the number of epochs that have run, and ``train`` calls the two.
#
# ``load_train_objs``
#    makes data set, model and optimizer. The seed is fixed, so that every run starts from the same
#    weights.
#
# ``prepare_dataloader``
#    decides the order of the samples. ``RandomSampler`` shuffles them; seeded with the number of
#    the epoch, it gives a new order in each epoch and the same orders in each run.
#
# ``utils.py``
#    holds what no page teaches: the data, the command line, the choice of the device, files written
#    so that they are never half there. What in it has to do with several processes is explained
#    where a script calls it. ``guard.py``, which it needs beside it, turns mistakes into one-line
#    messages; you need not read it.
#
# All scripts take the same arguments: the number of epochs, the epochs between two saves, and if
# you like ``--batch_size`` and ``--checkpoint_path``.
#
# The whole script
# ----------------
#
# .. lesson-script:: single_gpu
