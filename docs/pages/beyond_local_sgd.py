# %% [markdown]
"""
Local SGD and DiLoCo: averaging the weights now and then
========================================================
"""

# %% [markdown]
# **You will be able to** train with a hundredth of DDP's bytes, and to say what that changes in the
# result and in a checkpoint.
#
# **You need** the script of :doc:`4_multinode`, and :doc:`5_minGPT` for the last section.
#
# DDP sends all gradients at every step. On a slow network, such as Ethernet between nodes, a step
# may wait longer than it computes. *Local SGD* communicates less: each rank trains its own copy of
# the model, and every N steps the ranks average their weights.

# %% [markdown]
# Averaging no gradients
# ----------------------
#
# .. lesson-diff:: local_sgd
#    :edit: average-no-gradients
#    :confirmed: efe82ebca280
#
#    DDP averages gradients only while ``require_backward_grad_sync`` is true. DDP is still useful, because its
#    constructor broadcasts the weights of rank 0, so all copies begin equal.
#
# .. run::
#    :expect: gradients its own
#    :mark: weights
#
#    python -m tools.series run --probe local_sgd@1 3 3
#
# The ``weights`` differ: these are two models.

# %% [markdown]
# Averaging the weights
# ---------------------
#
# .. lesson-diff:: local_sgd
#    :edit: average-the-weights
#    :confirmed: df7ad1836553
#
#    ``all_reduce`` gives every rank the sum, so each rank first divides its weights. Division and
#    all-reduce change the parameter in place, because ``detach()`` returns a tensor that shares its
#    memory.
#
#    All ranks count the same steps, so they reach each average together. The count includes the
#    steps before a restart, so a resumed run averages at the same steps as an uninterrupted one.
#
# .. run::
#    :expect: 9 all-reduces of 20 numbers
#    :mark: weights
#
#    python -m tools.series run --probe local_sgd@2 3 3
#
# In 96 steps there are 9 averages, where DDP needs 96. The weights have 20 numbers, and the bias,
# with one, has its own all-reduce. The sums of the weights are closer than before, but not equal,
# because each rank has made 6 more steps alone.
#
# PyTorch has this as well: call ``average_parameters`` of ``PeriodicModelAverager(period=10,
# warmup_steps=9)`` after each step. ``PostLocalSGDOptimizer`` does so in its ``step()``. *Post-local
# SGD* begins with DDP, and generalised better than large batches, at the same speed (`Lin et al. 2020
# <https://arxiv.org/abs/1808.07217>`__).

# %% [markdown]
# Saving one model
# ----------------
#
# Local rank 0 of each node saves. Between two averages, its weights differ from those of the other
# ranks, and its momentum always does. After a restart, all ranks load one node's file, and what the
# other ranks had is lost. So a killed run ends differently from an uninterrupted one:
#
# .. run::
#    :expect: (?m)^not equal
#    :status: 1
#    :show: 0 1
#    :mark: kill -9|Resuming|not equal
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 python -m tools.series run local_sgd@2 20 4
#    mv local_sgd_2.pt killed.pt
#    python -m tools.series run local_sgd@2 20 4 | tail -n 1
#    python docs/labs/same.py local_sgd_2.pt killed.pt
#
# The fix is to make the ranks equal at every save:
#
# .. lesson-diff:: local_sgd
#    :edit: save-one-model
#    :confirmed: 316e34a4957d
#
#    ``self.optimizer.state`` has a dictionary per parameter, which for SGD holds the momentum.
#    Every rank continues with the averages of weights and momenta, and the file holds the same. The
#    lines are above ``return``, because every rank must call ``all_reduce``.
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 1
#    :mark: kill -9|Resuming|equal, bit
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 torchrun --standalone --nproc_per_node=2 -m beyond.local_sgd 20 4
#    mv local_sgd.pt killed.pt
#    torchrun --standalone --nproc_per_node=2 -m beyond.local_sgd 20 4 | tail -n 1
#    python docs/labs/same.py local_sgd.pt killed.pt
#
# A save is now an average too, so saving more often gives a slightly different model.

# %% [markdown]
# Is N = 1 the same as DDP?
# -------------------------
#
# With SGD, yes, up to rounding. The update and the momentum are linear in the gradient, so you can
# average before the update or after it. Here ``forks.py`` trains both scripts on two ranks:
#
# .. run::
#    :expect: weights [\d.]+e-(0[789]|1\d)
#    :show: 0 1
#    :mark: weights
#
#    sed 's/^SYNC_EVERY = 10/SYNC_EVERY = 1/' beyond/local_sgd.py > every_step.py
#    python docs/labs/forks.py 2 every_step.py multinode.py 10 10 | grep saved
#    python docs/labs/distance.py multinode_2.pt every_step_2.pt
#
# With Adam, no. Adam divides by the root of the mean squared gradient, which is not linear, and
# each rank takes that mean over its own gradients. (``PostLocalSGDOptimizer`` never averages it.)

# %% [markdown]
# What it gains
# -------------
#
# A lab trains with DDP and with N = 1, 8 and 100, and prints the losses after the 5th and the 20th
# epoch:
#
# .. run::
#    :expect: every 100 \| loss
#    :alone:
#
#    torchrun --standalone --nproc_per_node=2 -m docs.labs.sync_every 20

# %%
import re

import lab

log = lab.run("torchrun --standalone --nproc_per_node=2 -m docs.labs.sync_every 20")
found = re.findall(r"every (\d+) +\|.*\| +([\d.]+) x", log)
steps, speeds = [int(n) for n, _ in found], [float(speed) for _, speed in found]
log = lab.run("torchrun --standalone --nproc_per_node=2 -m docs.labs.drift 64")
drifts = {name: [*map(float, row.split())] for name, row in re.findall(r"(every \d+) \| (.+)", log)}

figure, (left, right) = lab.picture(
    "Left: speed as a multiple of DDP's, "
    + ", ".join(f"{speed} with N = {n}" for n, speed in zip(steps, speeds, strict=True))
    + ". Right: how far the weights of two ranks are apart after each step: up to "
    + ", ".join(f"{max(row):.3f} if they average {name} steps" for name, row in drifts.items())
    + ", and 0 after each average.",
    height=2.4,
    columns=2,
)
left.plot(steps, speeds, "o-")
left.axhline(1, color=lab.COLORS[1], linewidth=1, linestyle="--")
left.annotate("DDP", (steps[-1], 1), ha="right", va="bottom", color=lab.COLORS[1])
left.set(xlabel="N, steps per average", ylabel="speed / DDP's", xscale="log", ylim=(0, None))
left.set_xticks(steps, steps)
left.minorticks_off()
for name, row in drifts.items():
    right.plot(range(1, len(row) + 1), row, label=name, linewidth=1.2)
right.set(xlabel="step", ylabel="distance of the ranks", ylim=(0, 0.11))  # room for the legend
right.legend()

# %% [markdown]
# Between two averages the ranks drift apart, and further with a larger N. Still, the loss stays that
# of DDP, because the problem is linear and both ranks see the same kind of data. A deep model may
# lose accuracy: see "A GPT on a slow link".
#
# N = 1 is slower than DDP, because it sends two messages per step, one for the weights and one for the
# bias, where DDP sends one. A larger N gains a lot, because this tiny model spends most of a step
# waiting for messages. If your step waits for messages a tenth of its time, you save a tenth at
# most.
#
# Buffers, such as the running means of batch normalisation, stay different on each rank, so average
# them too if your model has any.

# %% [markdown]
# Letting one clock decide
# ------------------------
#
# The right N depends on the speed of a step and of the network. Averaging every T seconds adapts to
# the speed of both. But if each rank reads its own clock, one may call ``all_reduce`` while another
# takes one more step. So in ``local_sgd_by_time.py`` the clock of rank 0 decides, and a
# :term:`broadcast` tells the others:
#
# .. lesson-diff:: local_sgd_by_time
#    :edit: let-one-clock-decide
#    :confirmed: fb0f7b24fc3b
#
#    A broadcast per step would cost about as much as an average of this small model, so the ranks
#    broadcast only every ``SYNC_EVERY`` steps.
#
#    ``broadcast`` overwrites every rank's ``elapsed`` with rank 0's. The clock restarts after each
#    average, also at a save.
#
# .. run::
#    :expect: 64 broadcasts
#    :show: 0 5
#    :mark: probe
#
#    python -m tools.series run --probe local_sgd_by_time 20 20
#
# The number of all-reduces depends on the speed of the machine, but it is the same on both ranks.
# To be able to repeat a run exactly, count steps instead.
# On one machine all ranks read nearly the same clock, so a script without the broadcast may seem
# correct for a long time.
#
# The same broadcast works for other decisions of rank 0, such as to stop early.

# %% [markdown]
# Treating the difference as a gradient
# -------------------------------------
#
# In ``local_sgd.py``, each rank's optimizer sees only that rank's gradients, so no optimizer knows
# in which direction the averages move. *DiLoCo* (Douillard et al., 2023, arXiv 2311.08105) adds one
# that does. Each rank trains with its own *inner* optimizer, and every N steps an *outer* optimizer
# treats the change of the weights as a gradient. With eight workers, the paper reports the quality
# of synchronous training with 500 times less communication.
#
# .. lesson-diff:: diloco
#    :edit: treat-the-difference-as-a-gradient
#    :confirmed: 39bf38baf128
#
#    ``anchor`` holds the weights with which all copies began, as one vector. Gradient descent
#    subtracts a gradient, so the *outer gradient* is the anchor minus the average. SGD moves the
#    anchor, and every copy starts again from there.
#
#    No further message is needed: every rank has the same average and the same anchor, so all outer
#    optimizers take the same step. But the anchor, the outer gradient and, in the next section, a
#    momentum cost memory: three numbers per weight.
#
#    ``vector_to_parameters`` makes each weight a view of its part of the vector. Without
#    ``clone()``, the inner steps would move the anchor.
#
# .. run::
#    :expect: optimizers made 96 and 9 steps
#    :show: 1 4
#    :mark: optimizers
#
#    python -m tools.series run --probe diloco@1 3 3
#
# With a rate of 1 and without momentum, an outer step ends at anchor − (anchor − average), which is
# the average. So the result is that of ``local_sgd.py``.

# %% [markdown]
# Momentum for the outer steps
# ----------------------------
#
# Now the outer optimizer gets the paper's rate and momentum:
#
# .. lesson-diff:: diloco
#    :edit: give-it-momentum
#    :confirmed: 905d686925f7
#
#    With momentum 0.9, a step also repeats 0.9 of the step before. If the averages keep moving in
#    one direction, the steps grow to 0.7 / (1 − 0.9) = 7 times the outer gradient. Nesterov's form
#    notices a change of direction sooner.
#
# .. run::
#    :expect: Epoch  3 . loss 0\.0[\s\S]*Epoch 20 . loss 0\.0[23]
#    :mark: Epoch +[35] \|
#
#    python -m tools.series run local_sgd 20 20 | sed -n '2p;4p;6p;11p;21p'
#    python -m tools.series run diloco@2 20 20 | sed -n '2p;4p;6p;11p;21p'
#
# After the third epoch, the loss is an eighth of that of ``local_sgd.py``. Then it rises, because
# the momentum carries the weights past the minimum. After 20 epochs, both are at the noise of the
# data, 0.03.

# %% [markdown]
# Saving the anchor and the momentum
# ----------------------------------
#
# Kill a worker now, and watch the loss:
#
# .. run::
#    :expect: Resuming after epoch (8|12)\n[\s\S]*loss [1-9]\.
#    :show: 0 1
#    :mark: Epoch +(8|11) . loss|kill -9|Resuming
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 python -m tools.series run diloco@2 20 4
#
# The loss becomes a hundred times as high, without an error. The restarted run has loaded the
# weights, but its anchor holds the initial ones. So the first outer gradient is the progress of all
# epochs so far, not of ten steps.
#
# .. lesson-diff:: diloco
#    :edit: save-both
#    :confirmed: 1d0e763e3e0b
#
#    A save usually comes between two outer steps, so the anchor cannot be computed from the
#    weights. Every rank has the same anchor and momentum, so nothing needs to be averaged here.
#
# .. run::
#    :expect: (?m)^equal
#    :show: 0 3
#    :mark: kill -9|Resuming|equal, bit
#
#    . launch/restarts.sh; python docs/labs/kill.py 10 torchrun --standalone --nproc_per_node=2 -m beyond.diloco 20 4
#    mv diloco.pt killed.pt
#    torchrun --standalone --nproc_per_node=2 -m beyond.diloco 20 4 | tail -n 1
#    python docs/labs/same.py diloco.pt killed.pt

# %% [markdown]
# A GPT on a slow link
# --------------------
#
# A lab adds DiLoCo to the trainer of :doc:`5_minGPT`:
#
# .. literalinclude:: ../labs/diloco_gpt.py
#    :pyobject: DiLoCo
#
# The GPT has two layers and 67,680 weights. It trains on two network namespaces of this machine
# (:doc:`launchers`), which play two nodes, with one process each. Each node sends at most 100 Mbit/s.
# All rows have the same batches and learning rate. In the
# row ``averages``, the outer rate is 1, without momentum:
#
# .. run::
#    :expect: bytes 1/(99|100|101) of DDP's; losses: DiLoCo [+-][0-5]\.
#    :mark: ^DiLoCo|^bytes
#    :alone:
#    :timeout: 1200
#
#    python -m docs.labs.diloco_gpt
#
# DDP has the lowest loss:

# %%
log = lab.run("python -m docs.labs.diloco_gpt")
points = {
    name: (float(sent), float(loss))
    for name, sent, loss in re.findall(r"(?m)^(\w+) +\| +([\d.]+) MB \| loss ([\d.]+)", log)
}

figure, axes = lab.picture(
    "Loss after equal tokens against the bytes that a node sent. "
    + "; ".join(f"{name}: {sent:.3g} MB, {loss:.3f}" for name, (sent, loss) in points.items()),
    height=2.4,
)
for name, (sent, loss) in points.items():
    axes.plot(sent, loss, "o", color=lab.COLORS[name == "DDP"], markersize=8)
    axes.annotate(name, (sent, loss), (9, 0), textcoords="offset points", va="center")
axes.set(xlabel="MB sent by node1", ylabel="loss", xscale="log", xlim=(1, 1000))
axes.set_xticks((1, 10, 100, 1000), ("1", "10", "100", "1,000"))
axes.margins(y=0.2)

# %% [markdown]
# **Bytes.** The network device of node1 counts them. DDP sends the gradients at each of 1,000
# steps, and the other two send the weights at every hundredth.
#
# **Loss.** Training apart raises the loss by a few percent, and the outer optimizer wins part of
# that back. We chose the lab's momentum, 0.8, by this loss, so do not read DiLoCo's lead as a rule.
#
# **Wall time.** On this link, DDP's bytes alone take 23 s, and DiLoCo's a quarter of a second.
#
# Without root or Linux, the lab prints rows that were measured earlier.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_local_sgd
#    :next: :doc:`beyond_comm_hooks`, which sends smaller messages in place of fewer
#
#    You can now average weights in place of gradients, let one rank decide for all, and add an
#    outer optimizer.
#
#    .. fold:: The average should begin as soon as any rank finds that T seconds have passed. What must change?
#
#       The broadcast becomes an ``all_reduce`` with ``ReduceOp.MAX``.
#
#    .. fold:: In DiLoCo you write ``average - self.anchor``. What happens?
#
#       SGD moves the anchor away from the average. Each time, the copies start further back, and
#       the loss grows without limit.
