# %% [markdown]
"""
Fault tolerance
===============
"""

# %% [markdown]
# **You will be able to** make a training run survive the death of its processes, and to prove that
# what it ends with is what it would have ended with anyway.
#
# **You need** the script of :doc:`2_multigpu`.
#
# The longer a run and the more devices it has, the surer it is that one of them fails. With
# ``mp.spawn`` that is the end. ``torchrun``, which comes with PyTorch, starts the processes, the
# *workers*, instead, and watches them: it is their :term:`agent`. When one fails it ends the others and
# starts them all again, and the script goes on from the newest :term:`checkpoint`.
#
# .. run::
#    :expect: ^Epoch 50 \| loss 0\.028
#    :show: 4 2
#    :lines: 1 1
#
#    {multigpu_torchrun}
#    mv multigpu_torchrun.pt undisturbed.pt
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 --max-restarts=3 multigpu_torchrun.py 50 10
#    python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
#    torchrun --standalone multigpu_torchrun.py 50 10
#
# Everything before the name of the script is for ``torchrun``, and nothing of it is decoration:
#
# ``--standalone``
#    one node; the processes meet at a port that is free.
#
# ``--nproc_per_node=2``
#    two processes. With GPUs, give their number.
#
# ``--max-restarts=3``
#    how often all processes may be started again. The default is 0: then ``torchrun`` restarts
#    nothing.
#
# ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1``
#    gives every restart a :term:`store` of its own. With the shared one, which is the default,
#    restarted processes read the addresses of dead ones and cannot connect
#    (`pytorch#135712 <https://github.com/pytorch/pytorch/issues/135712>`__).
#
# ``OMP_NUM_THREADS=1``
#    one thread of computation for each process. With two or more ``torchrun`` sets it anyway, and
#    warns when you have not.

# %% [markdown]
# Kill it
# -------
#
# ``kill.py`` runs a command and shoots one of its workers, here after the epochs 12 and 27. It marks
# every line with the seconds since the start:
#
# .. run::
#    :expect: Resuming after epoch 20
#    :show: 26 6
#    :lines: 2 4
#
#    {multigpu_torchrun}
#    mv multigpu_torchrun.pt undisturbed.pt
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 --max-restarts=3 multigpu_torchrun.py 50 10
#    python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
#    torchrun --standalone multigpu_torchrun.py 50 10
#
# The last command compares the two checkpoints, that of the run above, which nobody disturbed, and
# this one: weights, momentum and count of epochs are equal to the last bit. That is more than "it goes
# on": a run that lost its momentum, or saw an epoch twice, or in another order, would end elsewhere.

# %%
import re

import lab

COMMAND = (
    "OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 "
    "torchrun --standalone --nproc_per_node=2 --max-restarts=3 multigpu_torchrun.py 50 10"
)
log = lab.run(
    COMMAND,
    "mv multigpu_torchrun.pt undisturbed.pt",
    COMMAND.replace("torchrun", "python docs/labs/kill.py 12,27 torchrun", 1),
    "python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt",
    "torchrun --standalone multigpu_torchrun.py 50 10",
)
ran = [(float(t), int(e)) for t, e in re.findall(r"^ *([\d.]+) s \| Epoch +(\d+) \| loss", log, re.M)]
kills = [float(t) for t in re.findall(r"^ *([\d.]+) s \| --- kill", log, re.M)]
again = len(ran) - len({epoch for _, epoch in ran})

figure, axes = lab.picture(
    f"Epochs over time: they climb, stop at each of two kills, and go on from the last saved epoch "
    f"after some seconds. Of 50 epochs {again} were run twice."
)
axes.plot(*zip(*ran, strict=True), ".", markersize=5)
for time in kills:
    axes.axvline(time, color=lab.COLORS[1], linestyle="--", linewidth=1.2)
    axes.annotate(" kill -9", (time, 1), color=lab.COLORS[1])
axes.set(xlabel="seconds since the start", ylabel="epoch", title=f"{again} epochs were run twice")

# %% [markdown]
# A kill costs two things: the seconds in which everything starts anew, which the picture shows, and
# the epochs since the last save, at most ``save_every`` of them.

# %% [markdown]
# Letting torchrun start the processes
# ------------------------------------
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: let-torchrun-start
#    :confirmed: 485fa058d1c4
#
#    Much goes, because ``torchrun`` now does it: counting, spawning, and the store. It runs the
#    script once for each process, as ``python`` would, and tells each in its environment who it is:
#    ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, and the store's ``MASTER_ADDR`` and ``MASTER_PORT``.
#    ``init_process_group`` reads all but ``LOCAL_RANK`` by itself. (The
#    docstring begins with ``r`` because it now has backslashes.)
#
#    ``LOCAL_RANK`` chooses the GPU. On one machine it equals ``RANK``; the difference matters on the
#    page :doc:`4_multinode`, and would be a bug waiting until then.

# %% [markdown]
# This is what the processes are told. The script prints it and ends:
#
# .. run::
#    :expect: rank 1: .*LOCAL_RANK=1
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 docs/labs/hello.py | sort
#
# (``GROUP_RANK`` is the number of the node; the scripts do not use it. ``MASTER_ADDR`` and
# ``MASTER_PORT``, the place of the store, differ from run to run and are left out.) Started without
# ``torchrun``, the script has nothing to go by, and says how it wants to be started:
#
# .. run::
#    :expect: no RANK in the environment
#    :status: 2
#
#    python multigpu_torchrun.py 50 10

# %% [markdown]
# Naming the cause of a failure
# -----------------------------
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: name-the-cause
#    :confirmed: 75ff9d104eaf
#
#    When a worker fails, ``torchrun`` prints a report. By itself it knows which rank failed *first*
#    (of ten processes nine usually fail because of the tenth) and with which status, but not why.
#    ``@record`` writes the exception that leaves ``worker`` into a file, which the report quotes.

# %% [markdown]
# Let rank 1 fail in its second epoch, and look at the end of the report:
#
# .. run::
#    :expect: AssertionError: disaster
#    :status: 1
#    :show: 0 20
#
#    sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and self.rank == 1), "disaster"; &/' multigpu_torchrun.py > broken.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 broken.py 3 1
#
# and at the same without ``@record``:
#
# .. run::
#    :expect: To enable traceback
#    :status: 1
#    :show: 0 11
#
#    sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and self.rank == 1), "disaster"; &/; /^@record/d' multigpu_torchrun.py > broken.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 broken.py 3 1
#
# The rank is there, the reason is not.

# %% [markdown]
# Resuming from a checkpoint
# --------------------------
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: resume
#    :confirmed: 6f6caed87be6
#
#    Every process reads the checkpoint for itself when it starts, whether it is the first time or the
#    fourth. ``utils.read_checkpoint`` returns ``{"epochs_run": 0}`` if there is no file yet. It
#    puts nothing into the model; model and optimizer are given so that a file which does not fit them is
#    refused instead of trained over.
#
#    Loading takes three things. The **weights** go into the model within DDP. The **state of the
#    optimizer** holds the momentum; without it training goes on, but not as before. The **count** of
#    epochs that have run says where ``train`` goes on: after the last one saved. It was saved as
#    ``epoch + 1``, since epochs count from 0: to save ``epoch`` would run the last one twice.
#
#    Nothing else is needed, because nothing else changes from epoch to epoch: the order of the
#    samples follows from the number of the epoch.
#
#    ``utils.report_resume`` says once, from rank 0, that training begins, or where it goes on, or that
#    nothing is left to do. ``set_aside`` goes: this script is meant to find what an earlier run has left.

# %% [markdown]
# How much does the momentum matter? Train 20 epochs and then 50, without loading it, and compare with
# a run that was not interrupted. (One process is enough to see it; with one process all scripts of the
# series do the same, to the last bit, and their checkpoints are alike.)
#
# .. run::
#    :expect: momentum_buffer +DIFFERENT
#    :status: 1
#
#    sed '/self.optimizer.load_state_dict/d' multigpu_torchrun.py > broken.py
#    python single_gpu.py 20 10 --checkpoint_path broken.pt | tail -n 1
#    torchrun --standalone broken.py 50 10 | tail -n 2
#    python single_gpu.py 50 10 --checkpoint_path undisturbed.pt | tail -n 2
#    python docs/labs/same.py undisturbed.pt broken.pt
#
# There was no error, and the last loss is the same in nearly every digit. Only the comparison shows it.

# %% [markdown]
# What could go wrong
# -------------------
#
# **The job ends at the first death.** ``torchrun`` restarts nothing unless ``--max-restarts`` says
# so. What it prints then is on the page of :doc:`symptoms`, under *Signal 9*.
#
# **It trains nothing and ends with success.** The checkpoint has run as many epochs already. This is
# the command once more, after the run above:
#
# .. run::
#    :expect: has run 50 epochs already and 50 were asked for
#    :lines: 5 5
#
#    {multigpu_torchrun}
#    mv multigpu_torchrun.pt undisturbed.pt
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 --max-restarts=3 multigpu_torchrun.py 50 10
#    python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
#    torchrun --standalone multigpu_torchrun.py 50 10
#
# **The checkpoint is damaged.** A script that writes straight into its file and is killed meanwhile
# leaves half a checkpoint behind. ``utils.save_checkpoint`` writes beside it and renames, so that
# the file is always the old one or the new one; and half a file, whoever left it, is refused:
#
# .. run::
#    :expect: is damaged, or no checkpoint at all
#    :status: 1
#    :show: 0 4
#
#    echo "half of a file" > half.pt
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=1 multigpu_torchrun.py 5 5 --checkpoint_path half.pt 2>&1 | grep multigpu_torchrun.py: | head -n 1
#
# :doc:`symptoms` lists these and more by the text of their error.

# %% [markdown]
# The whole script
# ----------------
#
# .. lesson-script:: multigpu_torchrun
