# %% [markdown]
"""
Multi-GPU training
==================
"""

# %% [markdown]
# **You will be able to** turn a training script for one device into one that uses all GPUs of a
# machine, and to say why each new line is there.
#
# **You need** the script of the :doc:`0_intro` and the idea of :doc:`1_theory`.
#
# Running the job
# ---------------
#
# The finished script starts one :term:`process` per GPU or, without a GPU, two processes that share
# the CPU:
#
# .. run::
#    :expect: ^Epoch 50 \| loss 0\.028
#    :show: 3 2
#    :alone:
#
#    {multigpu}
#
# Two processes are slower here than ``single_gpu.py`` in the :doc:`0_intro`. The model has 21
# parameters, so a step computes little, and averaging the gradients takes more time than the second
# process saves. :doc:`5c_fast` says when a second process pays.
#
# Seven edits lead to this script, and each brings the imports that it needs. After each edit, this
# page runs the new script for one epoch. With ``--probe``, every process reports in two lines what
# it did.

# %% [markdown]
# One process per device
# ----------------------
#
# ``single_gpu.py`` uses one device, even if the machine has eight. Threads would wait for each
# other at Python's *global interpreter lock* (GIL), so DDP uses one process per device.
#
# .. lesson-diff:: multigpu
#    :edit: start-the-processes
#    :confirmed: 3e35d2024bff
#
#    :torch:`mp.spawn <torch.multiprocessing.spawn>` starts ``nprocs`` processes. Each process calls
#    ``worker``, whose first argument is the number of the process: its :term:`rank`.
#    ``utils.num_processes`` returns the number of GPUs, or 2 without a GPU, unless ``NPROC`` is
#    set.
#
#    The parent does not train. If one process fails, ``mp.spawn`` terminates the others and reports
#    the error of the failed process.
#
#    ``worker`` must be a function at the top level of the script, because each new process imports
#    the script to find it. So ``mp.spawn`` belongs below ``if __name__ == "__main__":``; otherwise
#    Python stops with a ``RuntimeError``.
#
# .. run::
#    :expect: started by mp\.spawn
#    :mark: probe
#
#    python -m tools.series run --probe multigpu@1 1 1
#
# Two processes train, but they do not know each other: the probe says ``no rank`` and ``no group``.

# %% [markdown]
# Constructing the process group
# ------------------------------
#
# To average anything, the processes must agree on their ranks and connect.
#
# .. lesson-diff:: multigpu
#    :edit: construct-the-process-group
#    :confirmed: a1c4bffe1274
#
#    :torch:`torch.distributed.init_process_group` connects the processes, which then form a
#    :term:`process group`. By default (``env://``), it reads four environment variables. ``RANK``
#    is the rank of this process, and ``WORLD_SIZE`` the number of processes: the :term:`world
#    size`. ``MASTER_ADDR`` and ``MASTER_PORT`` say where to meet. There, rank 0 opens a
#    :term:`store`, a small server through which the processes exchange their addresses. The call
#    returns when all processes have joined. (:doc:`beyond_nodes_by_hand` shows other ways to meet.)
#
#    The processes inherit the address and the port from the parent. ``utils.free_port`` returns a
#    port that no other program uses.
#
#    ``utils.set_device`` makes one GPU the current one, with
#    ``torch.accelerator.set_device_index``. ``LOCAL_RANK``, the :term:`local rank`, is
#    the number of the process on its machine, and therefore the number of its GPU. Call
#    ``set_device`` before anything else uses a GPU; otherwise every process uses GPU 0.
#    ``device_id`` tells the group which GPU this process uses.
#
#    ``get_default_backend_for_device`` names the :term:`backend` for this script's device: NCCL for
#    GPUs, gloo for CPUs. If you name none, PyTorch chooses one for the accelerator that it finds.
#    On a Mac, that one would refuse this script's tensors, which are on the CPU.
#
# .. fold:: How to choose another backend
#
#    Besides ``nccl`` and ``gloo`` there are ``xccl``, for Intel GPUs, and ``mpi``, if you build
#    PyTorch against an MPI library. ``dist.init_process_group("gloo")`` chooses a backend by name,
#    and ``"cpu:gloo,cuda:nccl"`` one per kind of device.
#
# .. run::
#    :expect: rank 1 of 2
#    :mark: probe
#
#    python -m tools.series run --probe multigpu@2 1 1
#
# The processes have ranks now, but their loss lines are the same, because both train on all 2,048
# samples.

# %% [markdown]
# Distributing input data
# -----------------------
#
# Each rank should train on its own half of the samples.
#
# .. lesson-diff:: multigpu
#    :edit: distribute-the-data
#    :confirmed: d558a0cbbe89
#
#    :torch:`torch.utils.data.DistributedSampler` asks the process group for rank and world size. On
#    every rank it shuffles all 2,048 samples in the same way. Then it deals them like cards: rank 0
#    takes the first, rank 1 the second, rank 0 the third. If the number of samples is not a
#    multiple of the world size, it repeats a few, so that all ranks take equally many steps.
#
#    The order depends on a seed and on the epoch, which ``set_epoch`` passes. Without this call,
#    every epoch has the order of the first.
#
#    ``--batch_size`` counts the samples of *one* process, so two processes with 32 samples each
#    take 64 per step. :doc:`batch_and_learning_rate` says what that means for the learning rate.
#
# .. run::
#    :expect: over 1024 samples
#    :mark: over 1024 samples
#
#    python -m tools.series run --probe multigpu@3 1 1
#
# Each rank saw 1,024 samples. But ``weights``, the sum of a rank's weights, differs, because each
# rank now trains its own model on one half of the data.
#
# .. play:: set-epoch
#
#    A square is a sample, a row is an epoch, and the colour is the rank that has the sample.
#
# Constructing the DDP model
# --------------------------
#
# Nothing keeps the two models equal. There is no error, and both losses fall.
#
# .. lesson-diff:: multigpu
#    :edit: construct-the-ddp-model
#    :confirmed: 30702bd61ca2
#
#    :torch:`DDP <torch.nn.parallel.DistributedDataParallel>` wraps the model. Its constructor
#    broadcasts rank 0's weights, so all copies start equal. During ``backward()`` it averages the
#    gradients over all processes, so the copies stay equal.
#
#    The model moves to its device first, because DDP prepares its buckets for the device of the
#    parameters. The optimizer updates the same parameters as before, so it needs no change.
#
#    ``self.model`` is now DDP, and the model itself is ``self.model.module``. Without ``.module``
#    in ``_save_checkpoint``, every name in the checkpoint would begin with ``module.``, and a plain
#    model could not load it.
#
# .. fold:: If your script passes ``device_ids``
#
#    Some scripts pass ``device_ids=[local_rank]`` to DDP, which then moves the inputs to that GPU.
#    If model and batches are on the device already, as here, you can remove this argument. On a CPU
#    you must remove it, because DDP refuses it there.
#
# .. run::
#    :expect: gradients averaged
#    :mark: probe
#
#    python -m tools.series run --probe multigpu@4 1 1
#
# One all-reduce per step averages the gradients, and ``weights`` is the same number on both ranks.

# %% [markdown]
# Reporting the global loss
# -------------------------
#
# There are still two loss lines per epoch, and neither covers all samples. With early stopping,
# each rank would decide by its own loss: one would stop, and the others would wait for it.
#
# .. lesson-diff:: multigpu
#    :edit: report-the-global-loss
#    :confirmed: 84c5eb3c00da
#
#    ``totals`` holds the summed loss and the number of samples of *this* process. On every rank,
#    :torch:`torch.distributed.all_reduce` replaces it by the sum over all ranks. Then only rank 0
#    prints the loss.
#
#    ``all_reduce`` must come before the ``return``, because it is a :term:`collective`: after the
#    ``return`` only rank 0 would call it. Rank 0 would then hang, or mix its numbers with the
#    others' next gradients and fail.
#
# .. run::
#    :expect: over 2048 samples
#    :mark: over 2048
#
#    python -m tools.series run --probe multigpu@5 1 1
#
# One line now covers all 2,048 samples.

# %% [markdown]
# Saving model checkpoints
# ------------------------
#
# Every process writes the checkpoint to the same path.
#
# .. lesson-diff:: multigpu
#    :edit: save-once
#    :confirmed: 5561783a1e15
#
#    All ranks have the same weights after each step, so rank 0 alone writes the file.
#
#    With a plain ``torch.save(checkpoint, path)``, two writers can leave a damaged file. Here they
#    cannot, because ``utils.save_checkpoint`` writes a temporary file and renames it.
#
# .. run::
#    :expect: checkpoint saved
#    :mark: checkpoint saved
#
#    python -m tools.series run --probe multigpu@6 1 1
#
# The checkpoint is saved once. But the probe says ``group not left``.

# %% [markdown]
# Ending the process group
# ------------------------
#
# A process group has threads and connections, which must end before Python does. Otherwise a run
# may train well and then die with SIGABRT while Python shuts down.
#
# .. lesson-diff:: multigpu
#    :edit: end-the-process-group
#    :confirmed: defa7dc57f65
#
#    ``destroy_process_group`` ends threads and connections. After an exception it does not run, but
#    ``guard.py`` then ends the process.
#
#    ``main`` returned before this call, so no DDP model is left. A model that still exists may make
#    the process hang: see :doc:`internals`.
#
#    ``barrier`` makes every rank wait for all others, and rank 0 reaches it only after its last
#    save. Without it, rank 1 would report success while the last checkpoint is still being written.
#
# .. run::
#    :expect: group left
#    :mark: group left
#
#    python -m tools.series run --probe multigpu@7 1 1

# %% [markdown]
# What could go wrong
# -------------------
#
# **A process is missing.** Here ``worker`` is called directly, so only one of two processes starts,
# and waits for the other. PyTorch would be silent for minutes, until it times out. ``guard.py``
# prints the last line after five seconds, and ``timeout`` ends the process after thirty:
#
# .. run::
#    :expect: waiting for all 2 processes
#    :mark: waiting for
#    :status: 124
#
#    sed 's/    mp.spawn(.*/    worker(0, world_size, args)/' multigpu.py > broken.py
#    timeout 30 python broken.py

# %% [markdown]
# The chapter, played
# -------------------
#
# The script after each edit, from ``single_gpu.py`` to ``multigpu.py``:
#
# .. terminal::
#    :line: 1
#
#    for stage in multigpu@0 multigpu@1 multigpu@2 multigpu@3 multigpu@4 multigpu@5 multigpu@6 multigpu@7; do echo "--- $stage"; python -m tools.series run $stage 2 2; done 2>&1 | python docs/labs/clock.py

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 2_multigpu
#    :next: :doc:`batch_and_learning_rate`, then :doc:`3_fault_tolerance`, or :doc:`your_script` to edit your own. :doc:`symptoms` lists errors by their text
#
#    You can now turn a script for one device into one for all GPUs of a machine, and say what each
#    new line prevents.
#
#    .. fold:: You forget ``set_epoch``. What changes in the output?
#
#       The first epoch stays the same, because the sampler starts with the order of epoch 0. From
#       the second epoch on, the losses and the weights differ a little. No count changes and no
#       error appears.
#
#    .. fold:: With ``NPROC=4`` the loss of the first epoch is higher than with two processes. Is that a mistake?
#
#       No. Each process takes 32 samples per step, so four take 128, and an epoch has 16 steps
#       instead of 32. Fewer steps with the same learning rate move the weights less far.
