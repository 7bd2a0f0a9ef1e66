# %% [markdown]
"""
Fault tolerance
===============
"""

# %% [markdown]
# **You will be able to** make a training run survive the death of its processes, and prove that it
# ends with the same weights as an undisturbed run.
#
# **You need** the script of :doc:`2_multigpu`.
#
# The longer a run lasts and the more processes it has, the more likely one dies. The script of this
# page survives that. Here :torch:`torchrun <torch.distributed.run>`, the launcher that comes with
# PyTorch, starts it:
#
# .. run::
#    :alone:
#    :expect: ^Epoch 50 \| loss 0\.028
#    :show: 3 2
#    :lines: 1 1
#
#    {multigpu_torchrun}
#    mv multigpu_torchrun.pt undisturbed.pt
#    . launch/restarts.sh; python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py 50 10
#    python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
#    torchrun --standalone multigpu_torchrun.py 50 10
#
# If restarts are allowed and a process dies, ``torchrun`` starts all processes again, and the
# script resumes from its last :term:`checkpoint`.

# %% [markdown]
# Letting torchrun start the processes
# ------------------------------------
#
# First kill a process of ``multigpu.py``. ``kill.py`` runs a command and sends SIGKILL to one of
# its processes, here after epoch 5 of 10. It needs Linux:
#
# .. run::
#    :expect: process 1 terminated with signal SIGKILL
#    :status: 1
#    :mark: SIGKILL
#
#    python docs/labs/kill.py 5 python multigpu.py 10 2
#
# ``mp.spawn`` terminates the other process and reports the death. Nothing starts the run again.
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: let-torchrun-start
#    :confirmed: 2bb34301b7c2
#
#    Now ``torchrun`` starts the processes, which it calls :term:`workers <worker>`, and watches
#    them as their :term:`agent`. When a worker fails, the agent ends the others and, if restarts
#    are left, starts all workers again.
#
#    Each worker runs the script from its first line, so ``mp.spawn`` is gone. The agent also sets
#    the variables that the script set by hand: ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE``,
#    ``MASTER_ADDR`` and ``MASTER_PORT``. ``ddp_setup`` reads them as before.
#
# .. run::
#    :expect: Epoch +1 \| loss[\s\S]*failed \(exitcode: -9\)[\s\S]*Epoch +1 \| loss
#    :mark: Epoch +1 \| loss|failed
#    :show: 13 2
#
#    . launch/restarts.sh; python docs/labs/kill.py 5 python -m tools.series run multigpu_torchrun@1 10 2
#
# The agent reports that a worker failed, and starts both again. But they begin with epoch 1.
#
# .. diagram:: agent
#
#    The agent starts the workers and tells them where their :term:`store` is. The workers find each
#    other through the store, and exchange gradients directly.

# %% [markdown]
# What the commands say
# ---------------------
#
# Everything between ``torchrun`` and the name of the script is for ``torchrun``:
#
# ``--standalone``
#    There is one node. The processes meet at a free port.
#
# ``--nproc_per_node=2``
#    Start two workers. With GPUs, give the number of GPUs.
#
# To allow restarts, source ``restarts.sh`` once per shell. It sets three variables:
#
# .. recipe:: restarts.sh
#
# ``PET_MAX_RESTARTS=3``
#    Start all workers again up to three times, then give up. The flag is ``--max-restarts=3``, and
#    the default is 0.
#
# ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1``
#    Every restart gets a new :term:`store`, because the old one has the addresses of dead workers:
#    see :doc:`internals`.
#
# ``OMP_NUM_THREADS=1``
#    Each worker computes with one thread. With two or more workers ``torchrun`` sets this itself,
#    but warns.
#
# The finished script resumes, so to train anew, delete ``multigpu_torchrun.pt`` first.

# %% [markdown]
# Naming the cause of a failure
# -----------------------------
#
# A worker can also fail with an exception. Here ``sed`` puts an ``assert`` into the script, which
# fails on rank 1 in the second epoch, and ``grep`` shows the main lines of torchrun's report, in a
# shell without ``restarts.sh``:
#
# .. run::
#    :expect: Root Cause[\s\S]*To enable traceback
#    :status: 1
#    :mark: To enable traceback
#
#    python -m tools.series show multigpu_torchrun@1 | sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and dist.get_rank() == 1), "disaster"; &/' > broken.py
#    torchrun --standalone --nproc_per_node=2 broken.py 3 1 2>&1 | grep -E '^(Failures|Root)|^  (rank|traceback|\w+Error)'
#
# Under ``Root Cause`` the report says that rank 1 failed first, but not why. In the output of a
# hundred processes, its traceback is hard to find.
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: name-the-cause
#    :confirmed: 75ff9d104eaf
#
#    If ``worker`` ends with an exception,
#    :torch:`@record <torch.distributed.elastic.multiprocessing.errors.record>` writes the exception
#    to a file, which ``torchrun`` quotes in the report.
#
# .. run::
#    :expect: Root Cause[\s\S]*AssertionError: disaster
#    :status: 1
#    :mark: AssertionError
#
#    python -m tools.series show multigpu_torchrun@2 | sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and dist.get_rank() == 1), "disaster"; &/' > broken.py
#    torchrun --standalone --nproc_per_node=2 broken.py 3 1 2>&1 | grep -E '^(Failures|Root)|^  (rank|traceback|\w+Error)'
#
# Now the report names the error. Read ``Root Cause`` first, because rank 0, under ``Failures``,
# failed only as a consequence: it lost its connection to rank 1, or ``torchrun`` terminated it.
#
# ``guard.py`` makes a process that lost a connection wait for two seconds before it ends. Without
# this, ``torchrun`` may name a consequence as the cause.

# %% [markdown]
# Resuming from a checkpoint
# --------------------------
#
# The restarted workers of ``multigpu_torchrun@1`` trained from epoch 1, because they did not read
# the checkpoint of epoch 4.
#
# .. lesson-diff:: multigpu_torchrun
#    :edit: resume
#    :confirmed: 2bd86b9a211b
#
#    Every worker reads the checkpoint whenever it starts. If there is no file yet,
#    ``utils.read_checkpoint`` returns ``{"epochs_run": 0}``. Otherwise it loads the file with
#    ``map_location="cpu"``, because without this option every process would load rank 0's tensors
#    onto GPU 0.
#
#    The **weights** go into the model inside DDP. The **state of the optimizer** holds the
#    momentum. The **number of epochs** that have run says where ``train`` resumes. Nothing else is
#    needed, because the order of the samples follows from the number of the epoch.
#
#    ``resume=True`` allows a ``--checkpoint_path`` that already exists.
#
# .. fold:: How utils.py writes a checkpoint
#
#    .. literalinclude:: ../../utils.py
#       :pyobject: write
#
# .. diagram:: resume
#
#    A run that saves every 10 epochs is killed after epoch 12. It resumes from its last save, so
#    two epochs run again.
#
# Now ``kill.py`` runs this page's first command again and kills a worker after epochs 12 and 27.
# ``same.py`` compares the last checkpoints of both runs:
#
# .. run::
#    :expect: Resuming after epoch 20
#    :show: 8 2
#    :mark: --- kill|Resuming|bit for bit
#    :lines: 2 4
#
#    {multigpu_torchrun}
#    mv multigpu_torchrun.pt undisturbed.pt
#    . launch/restarts.sh; python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py 50 10
#    python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
#    torchrun --standalone multigpu_torchrun.py 50 10
#
# In the end all weights and momenta are those of the undisturbed run, bit for bit.
#
# On GPUs the last bits may differ (:doc:`5d_gpus`), and on more than two ranks the first step after
# a restart may round differently (:doc:`5c_fast`). A model with dropout also needs the state of the
# random generator, which
# :doc:`5b_robust` saves.

# %%
import re

import lab

log = lab.run(
    "torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py 50 10",
    "mv multigpu_torchrun.pt undisturbed.pt",
    ". launch/restarts.sh; python docs/labs/kill.py 12,27 "
    "torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py 50 10",
    "python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt",
    "torchrun --standalone multigpu_torchrun.py 50 10",
)
ran = [(float(t), int(e)) for t, e in re.findall(r"^ *([\d.]+) s \| Epoch +(\d+) \| loss", log, re.M)]
kills = [float(t) for t in re.findall(r"^ *([\d.]+) s \| --- kill", log, re.M)]
again = len(ran) - len({epoch for _, epoch in ran})

figure, axes = lab.picture(
    f"Epochs over time, with two kills. After each, training resumes some seconds later from the last "
    f"checkpoint, so {again} of 50 epochs ran twice."
)
axes.plot(*zip(*ran, strict=True), ".", markersize=5)
for time in kills:
    axes.axvline(time, color=lab.COLORS[1], linestyle="--", linewidth=1.2)
    axes.annotate(" kill -9", (time, 1), color=lab.COLORS[1])
axes.set(xlabel="seconds since the start", ylabel="epoch", title=f"{again} epochs were run twice")

# %% [markdown]
# What could go wrong
# -------------------
#
# **It trains nothing and ends with success.** The checkpoint already has all the epochs that you
# ask for. Here the command asks for the same 50 again:
#
# .. run::
#    :expect: has run 50 epochs already, and you asked for 50
#    :lines: 5 5
#
#    {multigpu_torchrun}
#    mv multigpu_torchrun.pt undisturbed.pt
#    . launch/restarts.sh; python docs/labs/kill.py 12,27 torchrun --standalone --nproc_per_node=2 multigpu_torchrun.py 50 10
#    python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
#    torchrun --standalone multigpu_torchrun.py 50 10
#
# **The momentum is lost.** A script that loads no optimizer state resumes without an error. But
# until the momentum has built up again, its loss falls more slowly. So save everything that has a
# state.
#
# **It prints that IPv6 addresses cannot be retrieved, and hangs.** Your machine's own name has no
# address. Use ``export PET_LOCAL_ADDR=127.0.0.1``: see :doc:`symptoms`.
#
# **The checkpoint is damaged.** A script that is killed while it writes straight into its file
# leaves half a checkpoint. ``utils.save_checkpoint`` writes a temporary file and renames it, so the
# checkpoint is always the old one or the new one. (A kill may leave a hidden
# ``.multigpu_torchrun.pt.*.tmp`` for you to delete.)

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 3_fault_tolerance
#    :next: :doc:`4_multinode`, which loses a whole machine
#    :also: torchrun <torch.distributed.run>, torch.load
#
#    You can now make a run survive the death of its processes, but not the loss of the machine.
#
#    .. fold:: A run saves every 10 epochs and dies once, at a random moment. How many epochs does it train twice?
#
#       About five on average; at worst ten, when it dies during a save. Training waits for each
#       save, but if an epoch takes a minute and a save takes a second, save after every epoch.
#
#    .. fold:: A run of two processes saved a checkpoint. You resume it with four. What changes?
#
#       It works, because nothing in the checkpoint depends on the number of processes. But
#       ``--batch_size`` counts per process, so a step now takes 128 samples instead of 64, and the
#       run no longer ends with the weights of the undisturbed one.
