# %% [markdown]
"""
Multi-GPU with DDP
==================
"""

# %% [markdown]
# **You will be able to** turn a script for one device into one that uses all GPUs of a machine, and
# to say what each of the new lines is for.
#
# **You need** the script of the :doc:`0_intro` and the idea of :doc:`1_theory`: several
# processes train copies of one model, each on its own share of the data, and average their
# gradients.
#
# The command is as short as before. On a machine with GPUs it starts one :term:`process` for each;
# without one, two processes that share the CPU:
#
# .. run::
#    :expect: ^Epoch 50 \| loss 0\.028
#    :show: 4 2
#
#    {multigpu}
#
# (The first losses are larger than with one process, because a step now takes 64 samples and there
# are half as many steps: :doc:`batch_and_learning_rate`.)
#
# The script changes in seven places. Here they are one by one, each with what happens if you leave it
# out. To try that yourself, run the same ``sed``: it takes a line out of a copy of the script.

# %% [markdown]
# One process for each device
# ---------------------------
#
# .. lesson-diff:: multigpu
#    :edit: start-the-processes
#    :confirmed: 1f7362ffa301
#
#    ``mp.spawn`` starts ``nprocs`` processes of this script and calls ``worker`` in each. It puts
#    a number of its own before the arguments: the :term:`rank`, 0 for the first process, 1 for the
#    second. That number is all that tells the processes apart. It also is the number of the GPU
#    that a process uses.
#
#    The parent does not train. It waits; if one process fails it ends the others and raises that
#    one's error. ``utils.num_processes`` counts the GPUs, and says two if there are none.
#
#    ``worker`` is a function of the module and not of ``main``, because each process imports the
#    script anew to find it. For the same reason everything stands below ``if __name__ ==
#    "__main__":``; without that line each process would try to start processes in turn, which Python
#    refuses with a ``RuntimeError``.

# %% [markdown]
# Without ``mp.spawn``, with ``worker`` called directly, there is one process where two are awaited.
# It waits for the other for ever, and the only thing that you see is that you see nothing:
#
# .. run::
#    :expect: ^No GPU
#    :status: 124
#
#    sed 's/    mp.spawn(.*/    worker(0, world_size, args)/' multigpu.py > broken.py
#    timeout 10 python broken.py
#
# (``timeout`` ends it after ten seconds, with status 124.) Remember the look of this: **a process
# that is missing does not raise an error, it makes the others wait.**

# %% [markdown]
# Constructing the process group
# ------------------------------
#
# .. lesson-diff:: multigpu
#    :edit: construct-the-process-group
#    :confirmed: 2804b8c3bbb3
#
#    The processes must find each other. The parent opens a :term:`store`, a small server of keys
#    and values, on a port that the system chooses (``0``); nobody else is using it, so two runs on
#    one machine never collide. ``MASTER_PORT`` in the environment, which the processes inherit,
#    tells them where. Each connects to it in ``ddp_setup``; the parent must keep its ``store``, for
#    with it the server would go.
#
#    ``init_process_group`` then makes the :term:`process group`: who am I, how many are we,
#    through which store do we meet. It returns when all have come.
#
#    ``utils.set_device`` makes GPU number ``rank`` the current one, and must come first: otherwise
#    every process would put its memory on GPU 0. ``device_id`` tells the group the same, and so
#    which :term:`backend` to use: NCCL for a GPU. On a CPU both do nothing, and the backend is
#    gloo.

# %% [markdown]
# Without the call ``DistributedSampler`` fails first, in the lines that are left out. The last error,
# below, is ``finally`` finding no group to end:
#
# .. run::
#    :expect: Default process group has not been initialized
#    :status: 1
#    :show: 0 9
#
#    sed '/^    ddp_setup(rank/d' multigpu.py > broken.py
#    NPROC=1 python broken.py 1

# %% [markdown]
# Constructing the DDP model
# --------------------------
#
# .. lesson-diff:: multigpu
#    :edit: construct-the-ddp-model
#    :confirmed: e635ef8c65ca
#
#    ``DDP`` wraps the model. In its constructor it sends the weights of rank 0 to all others, so
#    that the copies start equal; during ``backward()`` it averages the gradients over all
#    processes, so that they stay equal. :doc:`1_theory` builds it by hand.
#
#    The model goes to the device first, because DDP takes over the parameters it finds. The
#    optimizer needs no change: it holds the same parameters as before. Within ``_run_batch`` not a
#    line changes either, since ``self.model(source)`` goes through the wrapper.

# %% [markdown]
# Left out, nothing fails. Each process trains a model of its own on its own half of the data, and
# the loss still falls. To see it, let each print one of its weights at the end of every epoch, first
# without DDP:
#
# .. run::
#    :expect: rank 0 has
#
#    sed 's/dist.all_reduce/print(f"rank {self.rank} has", next(self.model.parameters())[0, 0].item()); &/' multigpu.py > printing.py
#    sed 's/DDP(\(model.to(self.device)\))/\1/; s/model.module/model/' printing.py > broken.py
#    python broken.py 2 | grep -E "rank . has|loss" | sort
#
# With DDP, without the second ``sed``, both ranks print the same numbers to the last digit.

# %% [markdown]
# Distributing input data
# -----------------------
#
# .. lesson-diff:: multigpu
#    :edit: distribute-the-data
#    :confirmed: e06264dce965
#
#    ``DistributedSampler`` shuffles all 2,048 samples in the same way on every process, and then
#    deals them out like cards: rank 0 takes the first, rank 1 the second, rank 0 the third. It asks
#    the process group for rank and world size by itself. (If the number of samples is not a
#    multiple of the number of processes, it repeats a few from the start, so that everybody takes
#    equally many steps.)
#
#    The order is drawn from a seed and the number of the epoch, and the sampler must be told the
#    number: ``set_epoch``. ``single_gpu.py`` seeds its sampler with the epoch too, which is why one
#    process of this script sees exactly the same order.
#
#    ``--batch_size`` still counts the samples of *one* process. Two processes with 32 take 64 in a
#    step: :doc:`batch_and_learning_rate` says what that means for the learning rate.

# %% [markdown]
# Had every process been told that it is alone, both would train on everything. The reported loss
# looks fine, but count the samples:
#
# .. run::
#    :expect: over 4096 samples
#    :show: 0 2
#
#    sed 's/DistributedSampler(dataset)/DistributedSampler(dataset, 1, 0)/' multigpu.py > broken.py
#    python broken.py 1
#
# And without ``set_epoch`` every epoch is the first one again. Below, two processes and 32 samples:
# each square is a sample, each row an epoch, and the colour says which rank had it at which step.

# %%
import lab
from torch.utils.data import DistributedSampler

figure, axes = lab.picture(
    "With set_epoch each of five epochs deals the samples out anew, half to each rank; without it "
    "all five rows are the same.",
    rows=1, columns=2, sharey=True,
)
for panel, told in zip(axes, (True, False), strict=True):
    for rank, color in enumerate(lab.COLORS[:2]):
        sampler = DistributedSampler(range(32), num_replicas=2, rank=rank)
        for epoch in range(5):
            if told:
                sampler.set_epoch(epoch)
            style = {"color": color, "marker": "s", "label": f"rank {rank}"}
            panel.scatter(list(sampler), [epoch + 1] * 16, 26, **style)
    panel.set(title="with set_epoch" if told else "without", xlabel="sample", yticks=range(1, 6))
    panel.spines[:].set_visible(False)
axes[0].set(ylabel="epoch", ylim=(5.5, 0.5))
handles, labels = axes[0].get_legend_handles_labels()
figure.legend(handles[::5], labels[::5], loc="outside upper right", ncols=2)

# %% [markdown]
# Reporting the global loss
# -------------------------
#
# .. lesson-diff:: multigpu
#    :edit: report-the-global-loss
#    :confirmed: 4e860e413e55
#
#    DDP averages gradients and nothing else. ``totals`` still holds what *this* process has seen:
#    half of the samples, and the loss over them. ``all_reduce`` replaces it, on every process, by
#    the sum over all of them. Then one process prints it; if all did, there would be every line
#    twice.
#
#    The order matters. ``all_reduce`` is a :term:`collective`: all processes must call it, and
#    ``dist.get_rank()``, which asks the group for the rank, decides only who prints. Below the
#    ``return`` only rank 0 would. It would wait for the others, or worse, meet the next thing that
#    they send, which is a gradient.

# %% [markdown]
# Without it rank 0 reports its own share as if it were all:
#
# .. run::
#    :expect: over 1024 samples
#    :show: 0 2
#
#    sed '/dist.all_reduce/d' multigpu.py > broken.py
#    python broken.py 1
#
# The loss of half the samples is not even far off, which is what makes it a trap: every decision
# based on it (stop early, keep the best) would be taken on different numbers by different
# processes.

# %% [markdown]
# Saving model checkpoints
# ------------------------
#
# .. lesson-diff:: multigpu
#    :edit: save-once
#    :confirmed: e6a7f732e02d
#
#    After each step all processes hold the same weights, so one file is enough, and one process
#    writes it. ``utils.save_checkpoint`` would survive several writers; the network and the disk
#    would carry the file once for each.
#
#    ``self.model`` is the wrapper now. The model itself is ``self.model.module``, and its
#    ``state_dict`` has the names that any script can load.

# %% [markdown]
# Without ``.module`` every name gets a prefix, and nothing that expects the plain model can load the
# file:
#
# .. run::
#    :expect: Missing key\(s\) in state_dict: "weight", "bias"
#    :status: 1
#    :show: 0 2
#
#    sed 's/self.model.module/self.model/' multigpu.py > broken.py
#    NPROC=1 python broken.py 1 | tail -n 1
#    python -c "import torch; torch.nn.Linear(20, 1).load_state_dict(torch.load('broken.pt')['model'])"

# %% [markdown]
# Ending the process group
# ------------------------
#
# .. lesson-diff:: multigpu
#    :edit: end-the-process-group
#    :confirmed: e76bcee4a636
#
#    A process group has threads and connections of its own. They must end before Python does:
#    gloo's threads may otherwise drop the last reference to a Python object while the interpreter
#    is being taken down, and the process dies with SIGABRT, after a training that went well. (It
#    happens in a few runs of a hundred: :doc:`symptoms`, "terminate called without an active
#    exception".)
#
#    ``finally`` sees to it that the group goes whatever happens. The ``barrier`` stands in front of
#    it, for success only: everybody waits until rank 0 has saved. In ``finally`` it would hang
#    after a crash, because the one that crashed never comes.
#
#    Two lines are there because of how references work. ``destroy_process_group`` ends the threads
#    only if nobody else holds the group.
#
#    The optimizer's constructor imports a module, ``torch.distributed.nn.functional``, whose
#    functions have *the group that exists at that moment* as a default argument. Imported early,
#    before there is a group, they hold nothing.
#
#    DDP holds the group, and what holds DDP are the variables of ``main``. After an exception its
#    traceback keeps them. Without one the optimizer's constructor may have: another import of its
#    leaves the variables of all functions that are at work, ``main`` among them, in a cycle of
#    references, and Python's garbage collector resolves that when it happens to come by.
#    ``utils.unwind`` clears what the traceback keeps, and calls the collector. A process that has
#    only lost its peer also waits two seconds there, so that the launcher sees the first failure
#    first.

# %% [markdown]
# The first of the two can be seen. This is what the module holds at the end of a clean run (with the
# early import it is ``None``) when the line is left out:
#
# .. run::
#    :expect: holds: .*ProcessGroup
#    :show: 0 1
#
#    sed 's/dist.destroy_process_group()/&; print("holds:", torch.distributed.nn.functional.gather.__defaults__[-1])/; /^import torch.distributed.nn/d' multigpu.py > broken.py
#    NPROC=1 python broken.py 1
#
# The group that should be gone is still there.

# %% [markdown]
# Is it faster?
# -------------
#
# Not with small batches. The model has 21 parameters and a step takes a fraction of a millisecond,
# less than the two processes need to agree on the gradients. The larger the batch, the fewer the
# steps, and the less that counts. First the default, 32 samples a process, then 1,024:

# %%
from statistics import median

logs = {
    ("32", "1 process"): lab.run("python single_gpu.py 50 10"),
    ("32", "2 processes"): lab.two_processes(),
    ("1,024", "1 process"): lab.run("python single_gpu.py 12 12 --batch_size 1024"),
    ("1,024", "2 processes"): lab.run("NPROC=2 python multigpu.py 12 12 --batch_size 1024"),
}
speeds = {key: median(speed for *_, speed in lab.epochs(log)) for key, log in logs.items()}

figure, axes = lab.picture(
    "Samples per second of the median epoch: "
    + "; ".join(f"batch size {b}, {p}: {speed:,.0f}" for (b, p), speed in speeds.items())
)
for place, (size, processes) in enumerate(speeds):
    speed = speeds[size, processes]
    bar = axes.barh(place + place // 2 * 0.3, speed, 0.9, color=lab.COLORS[int(processes[0]) - 1])
    axes.bar_label(bar, [f"{processes}: {speed:,.0f}"], padding=4)
axes.set(yticks=[0.5, 2.8], yticklabels=["32", "1,024"], ylabel="batch size a process")
axes.set(xlabel="samples/s (median epoch)", xlim=(0, max(speeds.values()) * 1.35))

# %% [markdown]
# These are the figures of the machine that built this page, and its two processes share a CPU.
# (Other commands ran meanwhile: the trend is what to look at.)
# What scales on GPUs is a model whose backward pass takes longer than the all-reduce that it can
# hide: :doc:`1_theory` measures both.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Asked for more processes than the data can feed.** The script says so before it starts anything:
#
# .. run::
#    :expect: ask for at most 1024
#    :status: 2
#
#    python multigpu.py 50 10 --batch_size 2000
#
# **An earlier checkpoint.** This script starts afresh every time, and an earlier run's file is kept
# under another name, not overwritten:
#
# .. run::
#    :expect: is kept as multigpu\.1\.pt
#    :show: 0 3
#
#    python single_gpu.py 1 1 --checkpoint_path multigpu.pt | tail -n 1
#    NPROC=1 python multigpu.py 1 1
#
# **One process dies.** Let rank 1 fail in its second epoch. The other is ended within seconds, and the
# message is that of the process that failed:
#
# .. run::
#    :expect: AssertionError: disaster
#    :status: 1
#    :show: 0 5
#
#    sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and self.rank == 1), "disaster"; &/' multigpu.py > broken.py
#    python broken.py 3 1
#
# But the work since the last checkpoint is lost, and this script cannot go on from it. That is the
# next page: :doc:`3_fault_tolerance`.
#
# :doc:`symptoms` lists these and more by the text of their error.

# %% [markdown]
# The whole script
# ----------------
#
# .. lesson-script:: multigpu
