# %% [markdown]
"""
Fault tolerance
===============
"""

# %% [markdown]
# **You will be able to** make a training run survive the death of its processes, and to prove that
# it ends with the same checkpoint as an undisturbed run.
#
# **You need** the script of :doc:`2_multigpu`.
#
# The longer a run and the more devices it has, the more likely one of them fails. With ``mp.spawn``
# that ends the run. ``torchrun``, which comes with PyTorch, does more: it starts the processes, the
# *workers*, and watches them. It is their :term:`agent`. When one fails, it terminates the others and
# starts all of them again, and the script resumes from the newest :term:`checkpoint`.
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
# Everything before the name of the script is for ``torchrun``, and each part is needed:
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
#    gives every restart its own :term:`store`. With the shared one, which is the default,
#    restarted processes read the addresses of dead ones and cannot connect
#    (`pytorch#135712 <https://github.com/pytorch/pytorch/issues/135712>`__).
#
# ``OMP_NUM_THREADS=1``
#    one computing thread per process. With two or more processes ``torchrun`` sets it anyway, and
#    warns if you have not.

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
# this one: weights, momentum and count of epochs are equal to the last bit. That is more than "it
# resumes": a run that lost its momentum, or saw an epoch twice, or in another order, would end elsewhere.

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
    f"Epochs over time: they climb, stop at each of two kills, and resume after the last saved epoch "
    f"some seconds later. Of 50 epochs {again} were run twice."
)
axes.plot(*zip(*ran, strict=True), ".", markersize=5)
for time in kills:
    axes.axvline(time, color=lab.COLORS[1], linestyle="--", linewidth=1.2)
    axes.annotate(" kill -9", (time, 1), color=lab.COLORS[1])
axes.set(xlabel="seconds since the start", ylabel="epoch", title=f"{again} epochs were run twice")

# %% [markdown]
# A kill costs two things: the seconds of the restart, which the figure shows, and the epochs since
# the last save, at most ``save_every`` of them.

# %% [markdown]
# Letting torchrun start the processes
# ------------------------------------
#
# ``multigpu.py`` starts its own processes, so nothing is left to start them again.
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: let-torchrun-start
#    :confirmed: 8a0555eb9318
#
#    ``torchrun`` runs the script once per process, as ``python`` would, and sets the variables that
#    the script set by hand: ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
#    ``MASTER_PORT``. So these lines go, and with them counting and spawning. ``ddp_setup`` is
#    unchanged. (The docstring begins with ``r`` because it now has backslashes.)

# %% [markdown]
# ``hello.py`` prints these variables in each process. Then the processes add up their ranks, which
# shows that they reach each other:
#
# .. run::
#    :expect: rank 1: .*LOCAL_RANK=1
#
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 launch/hello.py | sort
#
# ``LOCAL_RANK`` chooses the GPU. On one machine it equals ``RANK``; on several it does not, as
# :doc:`4_multinode` shows. (``GROUP_RANK`` is the number of the node; the scripts do not use it.
# ``MASTER_ADDR`` and ``MASTER_PORT`` differ from run to run and are left out.)
#
# Without ``torchrun`` these variables are missing, and our script prints how to start it:
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
# When a worker fails, ``torchrun`` prints a report. It says which rank failed *first* (of ten
# processes nine usually fail because of the tenth) and with which status, but not why.
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: name-the-cause
#    :confirmed: 75ff9d104eaf
#
#    ``@record`` writes the exception that leaves ``worker`` into a file, and the report quotes that
#    file.

# %% [markdown]
# Let rank 1 fail in its second epoch, and look at the end of the report:
#
# .. run::
#    :expect: AssertionError: disaster
#    :status: 1
#    :show: 0 20
#
#    sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and dist.get_rank() == 1), "disaster"; &/' multigpu_torchrun.py > broken.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 broken.py 3 1
#
# and at the same without ``@record``:
#
# .. run::
#    :expect: To enable traceback
#    :status: 1
#    :show: 0 11
#
#    sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and dist.get_rank() == 1), "disaster"; &/; /^@record/d' multigpu_torchrun.py > broken.py
#    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 broken.py 3 1
#
# The rank is there, the reason is not.

# %% [markdown]
# Resuming from a checkpoint
# --------------------------
#
# A restarted worker runs the script from its first line: without this edit it would train from epoch 1.
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: resume
#    :confirmed: 2bd86b9a211b
#
#    Every process reads the checkpoint whenever it starts, the first time as well as after a restart.
#    If there is no file yet, ``utils.read_checkpoint`` returns ``{"epochs_run": 0}``.
#
#    A checkpoint has three parts. The **weights** go into the model within DDP. The **state of the
#    optimizer** holds the momentum; without it training resumes, but not as before. The **number of
#    epochs** that have run is where ``train`` resumes. It was saved as ``epoch + 1``, since epochs
#    count from 0; with ``epoch`` the last epoch would run twice. Nothing else is needed, because
#    the order of the samples follows from the number of the epoch.
#
#    ``utils.report_resume`` prints after which epoch training resumes, or that nothing is left to do.
#    ``resume=True`` allows a ``--checkpoint_path`` that exists already.

# %% [markdown]
# How much does the momentum matter? Train 20 epochs, resume up to 50 without loading it, and compare
# with an undisturbed run. (One process is enough to see it. With one process all scripts of the
# series compute the same, to the last bit, and can read each other's checkpoints.)
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
#    :expect: has run 50 epochs already, and you asked for 50
#    :lines: 5 5
#
#    {multigpu_torchrun}
#    mv multigpu_torchrun.pt undisturbed.pt
#    OMP_NUM_THREADS=1 TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 --max-restarts=3 multigpu_torchrun.py 50 10
#    python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
#    torchrun --standalone multigpu_torchrun.py 50 10
#
# **The checkpoint is damaged.** A script that writes straight into its file and is killed meanwhile
# leaves half a checkpoint behind. ``utils.save_checkpoint`` writes a temporary file and renames it, so
# the checkpoint is always the old one or the new one. Half a file from elsewhere is refused:
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
