# %% [markdown]
"""
Groups that go on without a restart: torchft
============================================
"""

# %% [markdown]
# **You will be able to** train in groups of processes, so that the loss of one group does not stop the
# others, and bring a new group up to their state while they train.
#
# **You need** the script of :doc:`4_multinode`, and torchft 0.2. ``tools/bootstrap.py``, with the word
# ``groups``, installs it.
#
# When a process dies, torchrun ends all processes of all nodes, starts new ones, and they repeat
# what was trained since the last save. The more GPUs there are, the more often that happens: Meta
# counted 419 unexpected interruptions in 54 days on 16,384 GPUs (`Grattafiori et al. 2024
# <https://arxiv.org/abs/2407.21783>`__, section 3.3.4). `torchft
# <https://github.com/pytorch/torchft>`__, a library by PyTorch's developers, limits the damage to a
# *group*, one node for example. Each group has its own torchrun and its own process group. Between
# the groups, gradients are averaged among those that are there. Who is there is decided anew before
# each step.

# %% [markdown]
# Averaging among the groups that are there
# -----------------------------------------
#
# .. lesson-diff:: without_restart
#    :edit: average-among-the-groups-that-are-there
#    :confirmed: ff3c52fd59f9
#
#    **The lighthouse** is one small process that all groups know by its address. Each group tells it
#    ten times a second that it is alive.
#
#    **The manager** belongs to a process. In ``start_quorum`` it asks the lighthouse for the
#    *quorum*, the groups that make the next step. If these have changed, it makes a new process
#    group: the processes with its own rank, one per group. ``use_async_quorum=False`` makes it wait
#    for the answer.
#
#    **The state** is what the two calls of ``register_state_dict_fn`` name. Before the first step,
#    ``start_quorum`` copies the state of one process to those with the same rank in the other groups,
#    over HTTP. Later it does so for a group that has made fewer steps than the others.
#
#    **The gradients** are averaged twice: by DDP in the group, which is as in ``multinode.py``, and then
#    by the manager, among the processes with the same rank. The manager divides by the number of
#    groups in the quorum.
#
#    **should_commit** is true if no process of the group saw an error in this step. If a group died in
#    the middle of it, the average is worthless. Then the others find the new quorum and compute the
#    same batch again. All of a group must agree, or their weights would differ.
#
#    **The sampler** is that of torchft. It divides the samples among ``NUM_REPLICA_GROUPS`` groups,
#    whether they are there or not.
#
# ``tools.series run`` starts this lesson by ``docs/labs/groups.py``: a lighthouse and two groups of
# one process each, all on this machine. Each group prints the loss of its samples. While both are
# there, they train what ``multinode.py`` trains on two processes, bit for bit:
#
# .. run::
#    :expect: (?s)group 1 \| Epoch  3 \| loss.*equal, bit for bit.*equal, bit for bit
#    :mark: bit for bit
#
#    python -m tools.series run without_restart@1 3 3
#    torchrun --standalone --nproc_per_node=2 multinode.py 3 3 | tail -n 2
#    python docs/labs/same.py multinode.pt group0/without_restart_1.pt | tail -n 1
#    python docs/labs/same.py multinode.pt group1/without_restart_1.pt | tail -n 1

# %% [markdown]
# Going on where the others are
# -----------------------------
#
# A group that comes later now has the others' weights, but begins with the first batch of epoch 1.
# So it trains on other epochs than the others, and continues alone when they have ended.
#
# .. lesson-diff:: without_restart
#    :edit: go-on-where-the-others-are
#    :confirmed: cf705a78b4ec
#
#    **The manager counts steps**, and a newcomer takes the others' count with their state. The epoch and
#    the position in it follow from the count, so a newcomer skips the batches that the others have
#    trained on.
#
#    **A checkpoint** sets the count. So the script need not exchange checkpoints any more: the group
#    with the newest checkpoint has made most steps, and any that begins at the same time or later
#    takes its state.
#
#    **A group that was cut off** for ten seconds, and comes back, finds that the others went on
#    without it. Its loop is in the wrong place, so it ends. ``. launch/restarts.sh`` lets torchrun
#    start it again, as a newcomer.
#
# Here the group that is ready first begins alone. Group 1 is killed after epoch 5, and its folder is
# deleted. Soon after, it starts again:

# %%
import re

import lab

log = lab.run("python docs/labs/groups.py parallel.without_restart 30 30 --batch_size 4 --lose 5",
              "python docs/labs/same.py group0/without_restart.pt group1/without_restart.pt")
ran = re.findall(r"([\d.]+) s  group (\d) \| Epoch +(\d+) \| loss", log)
lost, back = (float(re.search(rf"([\d.]+) s  group 1 \| {what}", log)[1]) for what in ("--- lost", "Resuming"))

figure, axes = lab.picture(
    f"Epochs of two groups over time. After {lost:.1f} s, group 1 is lost. Group 0 waits, then "
    f"trains alone. Group 1 is back after {back:.1f} s, in the same epoch as group 0.")
for group, marker in ("0", "o"), ("1", "x"):
    points = [(float(t), int(epoch)) for t, g, epoch in ran if g == group]
    axes.plot(*zip(*points, strict=True), marker, markersize=5, label=f"group {group}")
axes.axvspan(lost, back, color=lab.COLORS[1], alpha=0.15)
axes.annotate("group 1 is lost", ((lost + back) / 2, 2), ha="center")
axes.set(xlabel="seconds since the start", ylabel="epoch")
axes.legend()

# %% [markdown]
# .. run::
#    :lines: 1 1
#    :alone:
#    :expect: (?s)group 1 \| --- lost.*group 0 \| Epoch.*group 1 \| Resuming after epoch
#    :mark: ---|Resuming|Epoch +[5-8] \| loss
#    :show: 3 2
#
#    python docs/labs/groups.py parallel.without_restart 30 30 --batch_size 4 --lose 5
#    python docs/labs/same.py group0/without_restart.pt group1/without_restart.pt
#
# Group 0 does not restart. It loses a few seconds, until the lighthouse has waited long enough for a
# sign of life from group 1 (``--heartbeat_timeout_ms``, by default 5,000). Then it trains alone, on
# its half of the samples. The newcomer has no checkpoint, and ends with the same weights:
#
# .. run::
#    :lines: 2 2
#    :expect: model\.weight +equal
#
#    python docs/labs/groups.py parallel.without_restart 30 30 --batch_size 4 --lose 5
#    python docs/labs/same.py group0/without_restart.pt group1/without_restart.pt

# %% [markdown]
# What it costs
# -------------
#
# **Time in each step.** Two questions go to a server, ``start_quorum`` and ``should_commit``, and
# the gradients are averaged one by one, after ``backward()``. A step of ``multinode.py`` takes one
# or two milliseconds here, so they count:
#
# .. run::
#    :expect: samples/s
#    :mark: samples/s
#    :alone:
#
#    python docs/labs/groups.py parallel.without_restart 5 5 --batch_size 4 | grep 'Epoch  5 . loss'
#    torchrun --standalone --nproc_per_node=2 multinode.py 5 5 --batch_size 4 | grep 'Epoch  5 . loss'
#
# Add the two groups' numbers. With steps of a second, that time is little.
#
# **Samples.** Until a lost group is back, no group trains on its samples, and the batch is smaller.
# The learning rate stays.
#
# **Repeatability.** The weights depend on when a group was lost. A resumed run of :doc:`5a_exact` ends
# with the weights of an undisturbed run; this one does not.
#
# **One more process.** If the lighthouse dies, all groups end, after 60 seconds, with ``TimeoutError``.
# And a scheduler must start lost groups again one by one: one job per group.
#
# The wider a group, the more processes stop when one dies. The narrower, the more copies of the
# model there are: a group holds a whole one.
#
# Nothing on this page was measured on a GPU. There, the script takes ``ProcessGroupNCCL``.

# %% [markdown]
# What could go wrong
# -------------------
#
# **A group trains alone from the start.** With ``--min_replicas 1`` the first group does not wait
# for one that starts later. If all others have finished, a newcomer finds no state to take.
#
# **"TimeoutError: status: Cancelled".** For 60 seconds, there was no quorum: the lighthouse died,
# there were fewer groups than ``--min_replicas``, or one hangs. (A group whose script hangs still
# tells the lighthouse that it is alive, so the others wait for it.) ``quorum_timeout`` of the
# manager sets the time.
#
# **"failed to connect to http://node1:29510 within timeout of 60s".** The lighthouse does not run
# there, or a firewall is between.
#
# **"the others left this group behind".** The group began alone, from an older checkpoint. Or for
# some seconds the network was cut, or the machine paused. In an all-reduce, the others wait for the
# timeout in ``make_manager``, and between steps for ``--heartbeat_timeout_ms``.
#
# **The loss is worse than with one group, without an error.** Two groups have the same
# ``REPLICA_GROUP_ID``, so they train on the same samples.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: parallel_without_restart
#    :next: :doc:`parallel_scale`, a model of memory and speed for all these ways
#    :also: torchrun <torch.distributed.run>
#
#    You can now say what stops when a process dies, and what does not.
#
#    .. fold:: Exercise: the newcomer takes the model, but not the optimizer. Make ``parallel/mine.py`` of the script, with that mistake, and let ``same.py`` judge. What do you expect?
#
#       One line changes. The newcomer begins with the others' weights and a momentum of 0, so its first
#       steps are other ones. Both groups then use the same averaged gradients, so after some hundred
#       steps their momenta are equal again, but the weights stay apart:
#
#       .. run::
#          :status: 1
#          :expect: model\.weight +DIFFERENT
#          :mark: model
#
#          sed 's/for part in self.model.module, optimizer/for part in [self.model.module]/' parallel/without_restart.py > parallel/mine.py
#          python docs/labs/groups.py parallel.mine 30 30 --batch_size 4 --lose 5 | grep -e ---
#          python docs/labs/same.py group0/mine.pt group1/mine.pt
#
#    .. fold:: 8 nodes of 8 GPUs, a group per node. One process dies. How many processes end, and how many restart?
#
#       The 8 of its node end and restart. The other 56 compute at most one batch again.
