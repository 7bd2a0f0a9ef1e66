# %% [markdown]
"""
Multi-GPU with DDP
==================
"""

# %% [markdown]
# **You will be able to** turn a script for one device into one that uses all GPUs of a machine, and
# to say why each new line is there.
#
# **You need** the script of the :doc:`0_intro` and the idea of :doc:`1_theory`: several
# processes train copies of one model, each on its own share of the data, and average their
# gradients.
#
# The command is as short as before. On a machine with GPUs the script starts one :term:`process` per
# GPU. Without a GPU it starts two processes that share the CPU:
#
# .. run::
#    :expect: ^Epoch 50 \| loss 0\.028
#    :show: 4 2
#
#    {multigpu}
#
# The last loss is nearly that of one process. The first losses are larger, because a step now takes 64 samples
# and an epoch has half as many steps: see :doc:`batch_and_learning_rate`.
#
# The script changes in seven places. Each section below shows one edit, and what happens without it.
# To try that yourself, run the same ``sed``: it takes the edit out of a copy of the script.

# %% [markdown]
# One process per device
# ----------------------
#
# ``single_gpu.py`` uses one device, even if the machine has eight. Each of the others needs its own
# process.
#
# .. lesson-diff:: multigpu
#    :edit: start-the-processes
#    :confirmed: 3e35d2024bff
#
#    ``mp.spawn`` starts ``nprocs`` processes, and each of them calls ``worker``. ``mp.spawn`` passes
#    the number of the process first: the :term:`rank`, 0 in the first process, 1 in the second. The
#    ranks are the only difference between the processes. ``utils.num_processes`` returns the number
#    of GPUs, or 2 without a GPU; the variable ``NPROC`` overrides it.
#
#    The parent does not train. It waits. If one process fails, ``mp.spawn`` terminates the others
#    and raises the error of the one that failed.
#
#    ``worker`` is a function at the top level of the script, because each new process imports the
#    script to find it. For the same reason the script must start its processes below ``if __name__
#    == "__main__":``. Without that line each new process would start processes itself, which
#    Python refuses with a ``RuntimeError``.

# %% [markdown]
# Call ``worker`` directly instead of through ``mp.spawn``, and one process trains where two are
# expected. The script waits for the second one, and hangs silently:
#
# .. run::
#    :expect: ^Starting 2 processes
#    :status: 124
#
#    sed 's/    mp.spawn(.*/    worker(0, world_size, args)/' multigpu.py > broken.py
#    timeout 10 python broken.py
#
# (``timeout`` ends it after ten seconds, with status 124.) Remember what this looks like: **a missing
# process raises no error. It makes the others wait.**

# %% [markdown]
# Constructing the process group
# ------------------------------
#
# The processes run, but they do not know of each other. They have to agree on their ranks and
# connect.
#
# .. lesson-diff:: multigpu
#    :edit: construct-the-process-group
#    :confirmed: 7c020e0550cb
#
#    ``init_process_group`` connects the processes: they form the :term:`process group`. It reads four
#    variables of the environment. ``RANK`` and ``WORLD_SIZE`` say which process this is, of how many.
#    ``MASTER_ADDR`` and ``MASTER_PORT`` say where to meet: rank 0 opens a :term:`store` there, a small
#    server through which the processes exchange their addresses. The call returns when all
#    processes have joined.
#
#    The parent sets the address and the port, which its processes inherit; ``worker`` sets what differs
#    between them. ``utils.free_port`` returns a port that no other program uses, so two runs on one
#    machine never collide. On the next page ``torchrun`` sets exactly these variables, and
#    ``ddp_setup`` stays as it is.
#
#    ``utils.set_device`` makes one GPU the current one. It comes first; otherwise every process would
#    use GPU 0. ``LOCAL_RANK`` is the number of the process on its machine, and so the number of its
#    GPU. ``device_id`` tells the group which device that is, and with it the :term:`backend`: NCCL
#    for GPUs. On a CPU ``device_id`` is ``None``, and the backend is gloo.

# %% [markdown]
# Without the call of ``ddp_setup``, the first line that needs a group fails:
#
# .. run::
#    :expect: Default process group has not been initialized
#    :status: 1
#    :show: 0 3
#
#    sed '/^    ddp_setup()/d' multigpu.py > broken.py
#    NPROC=1 python broken.py 1

# %% [markdown]
# Distributing input data
# -----------------------
#
# Every process draws all 2,048 samples, so two processes do all the work twice.
#
# .. lesson-diff:: multigpu
#    :edit: distribute-the-data
#    :confirmed: d558a0cbbe89
#
#    ``DistributedSampler`` gives each rank its share. On every rank it shuffles all 2,048 samples in
#    the same way, and then deals them like cards: rank 0 takes the first, rank 1 the second, rank 0
#    the third. It asks the process group for rank and world size. (If the number of samples is
#    not a multiple of the number of processes, it repeats a few samples, so that all ranks take
#    equally many steps.)
#
#    The order depends on a seed and on the epoch. The sampler does not know the epoch:
#    ``set_epoch`` passes it. ``single_gpu.py`` seeds its sampler with the epoch too, so one process
#    of this script sees the samples in exactly the same order.
#
#    ``--batch_size`` still counts the samples of *one* process. Two processes with 32 samples each
#    take 64 per step: :doc:`batch_and_learning_rate` says what that means for the learning rate.

# %% [markdown]
# If each process believes it is the only one, both train on all the data. The loss looks fine. The
# number of samples does not:
#
# .. run::
#    :expect: over 4096 samples
#    :show: 0 2
#
#    sed 's/DistributedSampler(dataset)/DistributedSampler(dataset, 1, 0)/' multigpu.py > broken.py
#    python broken.py 1
#
# Without ``set_epoch`` every epoch repeats the order of the first. Below are two processes and 32
# samples: each square is a sample, each row an epoch, and the colour says which rank had it.

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
# Constructing the DDP model
# --------------------------
#
# Each process now trains its own model on its own half of the data. Nothing keeps the two models
# equal.
#
# .. lesson-diff:: multigpu
#    :edit: construct-the-ddp-model
#    :confirmed: 30702bd61ca2
#
#    ``DDP`` wraps the model. Its constructor broadcasts rank 0's weights, so all copies start equal.
#    During ``backward()`` it averages the gradients over all processes, so the copies stay equal.
#    :doc:`1_theory` builds it by hand.
#
#    The model moves to its device first, because DDP takes over the parameters it finds. The
#    optimizer needs no change: it updates the same parameters as before. ``_run_batch`` needs none
#    either, since ``self.model(source)`` now calls the wrapper.
#
#    One line reaches through the wrapper. ``self.model`` is DDP now, and the model is
#    ``self.model.module``. Its ``state_dict`` has the names that every other script expects.

# %% [markdown]
# Without DDP there is no error, and the loss still falls. To see the two models drift apart, let each
# rank print one of its weights after every epoch, first without DDP:
#
# .. run::
#    :expect: rank 0 has
#
#    sed 's/dist.all_reduce/print(f"rank {dist.get_rank()} has", next(self.model.parameters())[0, 0].item()); &/' multigpu.py > printing.py
#    sed 's/DDP(\(model.to(self.device)\))/\1/; s/model.module/model/' printing.py > broken.py
#    python broken.py 2 | grep -E "rank . has|loss" | sort
#    python printing.py 2 | grep -E "rank . has|loss" | sort
#
# With DDP, in the last run, both ranks print the same numbers to the last digit.
#
# Without ``.module`` every name in the checkpoint gets a prefix, and a plain model cannot load it:
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
# Reporting the global loss
# -------------------------
#
# Every process prints a line per epoch, and each line is about that process's half of the samples.
#
# .. lesson-diff:: multigpu
#    :edit: report-the-global-loss
#    :confirmed: 84c5eb3c00da
#
#    DDP averages gradients and nothing else. ``totals`` still holds the summed loss and the number of
#    samples of *this* process. ``all_reduce`` replaces it, on every rank, with the sum over all
#    ranks. Then only rank 0 prints.
#
#    The order matters. ``all_reduce`` is a :term:`collective`: every rank must call it. If it came
#    after the ``return``, only rank 0 would reach it. It would hang, or, worse, receive what the
#    other ranks send next, which is a gradient.

# %% [markdown]
# Without ``all_reduce`` rank 0 reports its own share as if it were all:
#
# .. run::
#    :expect: over 1024 samples
#    :show: 0 2
#
#    sed '/dist.all_reduce/d' multigpu.py > broken.py
#    python broken.py 1
#
# The loss is close to the right one, and that is the trap. Ranks that decide by their own loss (when
# to stop, which checkpoint to keep) will one day decide differently.

# %% [markdown]
# Saving model checkpoints
# ------------------------
#
# Every process also writes the checkpoint, all to the same path.
#
# .. lesson-diff:: multigpu
#    :edit: save-once
#    :confirmed: 5561783a1e15
#
#    After each step all ranks have the same weights, so one file is enough, and rank 0 writes it.

# %% [markdown]
# Without these lines the same file is written twice:
#
# .. run::
#    :expect: checkpoint saved(.*\n)+.*checkpoint saved
#    :show: 0 3
#
#    sed '/def _save_checkpoint/,/return/ { /get_rank/d; /return/d }' multigpu.py > broken.py
#    python broken.py 1
#
# Here that is only a waste, because ``utils.save_checkpoint`` writes to a temporary file and renames
# it. With a plain ``torch.save(checkpoint, path)`` two writers can leave a damaged file.

# %% [markdown]
# Ending the process group
# ------------------------
#
# A process group has threads and connections. They must end before Python does. Otherwise a thread of
# gloo may drop the last reference to a Python object while the interpreter shuts down, and a process
# that has trained well dies with SIGABRT. This happens in a few runs of a hundred: see
# :doc:`symptoms`, "terminate called without an active exception".
#
# .. lesson-diff:: multigpu
#    :edit: end-the-process-group
#    :confirmed: defa7dc57f65
#
#    ``destroy_process_group`` ends the threads and closes the connections.
#
#    ``barrier`` makes every rank wait until all have reached it, rank 0 after its last save. Without
#    it rank 1 would leave the group and report success while the last checkpoint is still being
#    written.
#
#    After an exception neither line runs, and neither is needed: the script then ends the process
#    without shutting the interpreter down.

# %% [markdown]
# ``/proc`` lists the threads of a process on Linux. Count them before ``destroy_process_group`` and
# after it:
#
# .. run::
#    :expect: rank 0 ended [1-9]
#    :show: 0 2
#
#    sed 's|dist.destroy_process_group()|n = len(os.listdir("/proc/self/task")); &; print("rank", rank, "ended", n - len(os.listdir("/proc/self/task")), "threads")|' multigpu.py > broken.py
#    python broken.py 1
#
# (One more import matters here. The optimizer's constructor imports ``torch._dynamo``, and if that
# happens while there is a group, threads of the group outlive ``destroy_process_group``.
# ``utils.set_device`` therefore imports it first.)

# %% [markdown]
# Is it faster?
# -------------
#
# Not with small batches. The model has 21 parameters, and a step takes a fraction of a millisecond,
# less than the two processes need to average the gradients. The larger the batch, the fewer such
# steps per epoch. First the default, 32 samples per process, then 1,024:

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
axes.set(yticks=[0.5, 2.8], yticklabels=["32", "1,024"], ylabel="batch size per process")
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
# **An earlier checkpoint.** This script starts afresh every time, and replaces the ``multigpu.pt`` of
# an earlier run. A file that you name yourself is never overwritten:
#
# .. run::
#    :expect: single_gpu\.pt exists, and this script starts afresh
#    :status: 2
#
#    python single_gpu.py 1 1 | tail -n 1
#    python multigpu.py 1 1 --checkpoint_path single_gpu.pt
#
# **One process dies.** Let rank 1 fail in its second epoch. ``mp.spawn`` terminates rank 0 within
# seconds, and the message is that of rank 1:
#
# .. run::
#    :expect: AssertionError: disaster
#    :status: 1
#    :show: 0 5
#
#    sed 's/dist.all_reduce(totals)/assert not (epoch == 1 and dist.get_rank() == 1), "disaster"; &/' multigpu.py > broken.py
#    python broken.py 3 1
#
# But the work since the last checkpoint is lost, and this script cannot resume from it. That is the
# next page: :doc:`3_fault_tolerance`.
#
# :doc:`symptoms` lists these and more by the text of their error.

# %% [markdown]
# The whole script
# ----------------
#
# .. lesson-script:: multigpu
