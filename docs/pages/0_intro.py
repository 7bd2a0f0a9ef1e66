# %% [markdown]
"""
Introduction
============
"""

# %% [markdown]
# This series starts with a training script for one GPU. Small edits turn it into a script that
# trains on many GPUs, resumes after a crash, and runs on several machines. The fifth script trains a
# GPT.
#
# **You will be able to** run the first script, and say what each of its parts does.
#
# **You need** Python 3.11 to 3.14, and to have written a PyTorch training loop. You need no GPU,
# because the same code runs on the CPU.
#
# The first script
# ----------------
#
# ``single_gpu.py`` trains a linear model on 2,048 samples for 50 epochs. Every 10 epochs it saves a
# :term:`checkpoint`, a file from which training can resume:
#
# .. run::
#    :expect: ^Epoch 50 \| loss 0\.028
#    :show: 4 2
#    :alone:
#
#    {single_gpu}
#
# Each target is a linear function of its sample, plus noise drawn uniformly between −0.3 and 0.3.
# No model can predict the noise, so the loss falls to about its variance, 0.3² / 3 = 0.03.

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
# A distributed script can be wrong without any error: it may train on half of the data, or every
# process may train its own model. Later pages find such mistakes by the loss, the number of samples
# it covers, and the weights of the processes.
#
# The scripts
# -----------
#
# Down to the GPT, each script in this table is the one above it plus some edits. Each one below the
# GPT varies an earlier script.
#
# .. lessons-table::
#
# A *node* is one machine among several. The next page, :doc:`1_theory`, builds by hand what most
# scripts use: ``DistributedDataParallel`` (DDP). The :doc:`glossary` collects the terms. If you came
# with an error message, look it up in :doc:`symptoms`.
#
# How to read a page
# ------------------
#
# Each edit on a page leaves a whole script: a *stage*. The stage ``multigpu@3``, for example,
# is ``single_gpu.py`` with the first three edits of ``multigpu.py``. A diff shows how one stage
# becomes the next, and its *Copy* button copies new code. Below the diff, the page runs the new
# stage. Below each output are the seconds that the run took and, if a command failed, its exit
# status.
#
# ``tools.series run STAGE`` runs a stage, and ``tools.series show STAGE`` prints its code; type
# ``python -m`` before either.
#
# To run the commands yourself, clone the repository and type ``make run`` in its folder once. It
# installs what is missing into ``.venv``, including PyTorch. Then type ``source
# .venv/bin/activate`` and, in the same folder, the commands. If files of an earlier run change what
# a command does, start again in a fresh clone.
#
# The parts of the script
# -----------------------
#
# All scripts have the same parts in the same order:
#
# ``Trainer``
#    holds the model and the training loop, and saves the checkpoint: the model, the optimizer's
#    state, and how many epochs have run.
#
# ``load_train_objs``
#    creates the dataset, the model and the optimizer. Its seed is fixed, so every run starts from
#    the same weights.
#
# ``prepare_dataloader``
#    decides the order of the samples. In this script, ``RandomSampler`` shuffles them with a
#    generator that is seeded with the epoch, so every epoch has a new order, and every run has the
#    same orders.
#
# ``utils.py``
#    holds what no page teaches: the dataset, the command line, the choice of the device, and the
#    safe writing of files. It needs ``guard.py``, which turns mistakes into one-line messages. You
#    need not read either file.
#
# All scripts with a linear model take these arguments: the number of epochs, the number of epochs
# between two saves, and the options ``--batch_size`` and ``--checkpoint_path``.
#
# The whole script
# ----------------
#
# .. lesson-script:: single_gpu

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 0_intro
#    :next: :doc:`1_theory`, which builds DDP by hand
#
#    You can now run the script from which all others are made.
#
#    .. fold:: The loss ends near 0.03 and falls no further. Would a larger model help?
#
#       No. This model can learn all of the target but the noise, whose variance is about 0.03. A
#       loss far below that would mean that the model has memorized the noise of these samples.
#
#    .. fold:: One process trains alone, on half of the data. What shows it?
#
#       The number of samples in the loss line, which is 1,024 instead of 2,048. The loss falls all
#       the same, because half of the samples is enough to learn the same function.
