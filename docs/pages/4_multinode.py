# %% [markdown]
"""
Multi-node
==========
"""

# %% [markdown]
# **You will be able to** run one training on several machines that share nothing but a network, and
# to lose one of them with its disk.
#
# **You need** the script of :doc:`3_fault_tolerance`, and the same folder of scripts on every
# :term:`node`.
#
# The command is the same on every node, with the name of one of them in place of ``node1``:
#
# .. not-run:: node1 is a machine of yours; below the same runs as two agents on one machine
#
#    {multinode}
#
# ``--nnodes=2`` says how many nodes take part. ``--rdzv-backend=c10d --rdzv-endpoint=node1:29500``
# says where they meet: the :term:`agent` on that node opens a :term:`store` at that port, and the
# agents agree there who is who. This is the :term:`rendezvous`. ``--rdzv-conf``: an agent that falls
# silent is given up after four seconds, not fifteen. (It compares the clocks of the nodes. They must
# agree, which the preflight of :doc:`launchers` looks at.) The rest you know.
#
# (Slurm, Open MPI, Grid Engine and others start the same script, and :doc:`launchers` says how, what
# each of them sets, and how long it takes until a dead node is noticed.)

# %% [markdown]
# Two nodes on one machine
# ------------------------
#
# ``nodes.py`` plays two machines: two agents, each in a folder of its own, which share nothing but a
# port. It first prints the command that it starts for each of them, after a ``+``, and then marks
# every line with the seconds and the node that it comes from. Who is who:
#
# .. run::
#    :expect: node1 \| rank 3: GROUP_RANK=1 +LOCAL_RANK=1
#
#    python docs/labs/nodes.py launch/hello.py | sort -k 5
#
# Four processes, :term:`rank` 0 to 3. The :term:`local rank` counts anew on every node: it says
# which GPU a process takes. Which node comes first is decided at the rendezvous and may differ from
# run to run, also from restart to restart of one run.
#
# Now the training. Only rank 0 prints the loss, over all four:
#
# .. run::
#    :expect: node1 \| Epoch 10 \| checkpoint saved
#    :show: 5 4
#
#    python docs/labs/nodes.py multinode.py 10 5
#    ls node0 node1
#
# Two edits to the script make this safe.

# %% [markdown]
# Saving on every node
# --------------------
#
# On one machine one file was enough. Here rank 0 writes it to its node's disk, and if that
# node is lost, so is the file.
#
# .. lesson-diff:: multinode
#    :edit: save-on-every-node
#    :confirmed: 84badf1423bc
#
#    One process of every node saves: the one with :term:`local rank` 0. ``dist.get_node_local_rank()``
#    returns the number that ``torchrun`` passes as ``LOCAL_RANK``. All ranks hold the same model and
#    optimizer, so all nodes write the same checkpoint. If the nodes do share a folder, they write the same
#    file twice; it is still whole at every moment, since each writes a temporary file and renames it.
#
#    The loss is still printed by rank 0, and there is only one of these.

# %% [markdown]
# With ``dist.get_rank()`` in its place only one of the folders gets a checkpoint. (To save time, these
# experiments run one process per node; leave ``--nproc_per_node=1`` out to have two.)
#
# .. run::
#    :expect: node1:$
#    :show: 1 8
#
#    sed 's/get_node_local_rank/get_rank/' multinode.py > broken.py
#    python docs/labs/nodes.py --nproc_per_node=1 broken.py 2 1
#    ls node0 node1

# %% [markdown]
# Resuming from the newest checkpoint
# -----------------------------------
#
# After a restart the nodes may hold different files. One was killed before it had saved, one has a
# new, empty disk, one has a file from last week. If each node resumed from its own file, ranks would
# train different epochs, and hang in the end.
#
# .. lesson-diff:: multinode
#    :edit: resume-from-the-newest
#    :confirmed: ea9ac0b4acbb
#
#    ``all_gather_object`` collects every rank's count of epochs, in the order of the ranks, so every
#    rank holds the same list and finds the same maximum in it. The first rank with that count
#    broadcasts its checkpoint to all others. ``broadcast_object_list`` takes a list, because it
#    replaces the contents of the list by what it receives.
#
#    DDP's own broadcast is not enough. It sends from rank 0, which may be on the node with the empty
#    disk, and it sends the weights only, neither momentum nor epoch.

# %% [markdown]
# Let ``node1`` have a checkpoint of 10 epochs and ``node0`` none, and train both up to epoch 15: first
# with these lines, then with a copy of the script that lacks them. (A checkpoint is named after its
# script, so the copy gets ``node1``'s file as ``broken.pt``.)
#
# .. run::
#    :expect: node0 \| Epoch +1 \|
#    :status: 124
#    :show: 5 3
#
#    python single_gpu.py 10 10 --checkpoint_path multinode.pt | tail -n 1
#    mkdir node1
#    cp multinode.pt node1/multinode.pt
#    mv multinode.pt node1/broken.pt
#    python docs/labs/nodes.py --nproc_per_node=1 multinode.py 15 5
#    sed '/^        progress = /d; /dist.all_gather_object/d; /newest/d; /^        # /d' multinode.py > broken.py
#    python docs/labs/nodes.py --nproc_per_node=1 --patience 5 broken.py 15 5
#
# In the copy each node takes its own file: ``node0`` begins with epoch 1 and a new model, ``node1`` with
# epoch 11 and a trained one. DDP averages their gradients all the same, and the printed loss is the mean
# of two losses that have nothing to do with each other. After epoch 15 ``node1`` waits at the barrier and
# ``node0`` waits for gradients. It hangs, until ``--patience`` ends it.

# %% [markdown]
# Losing a node
# -------------
#
# The hard case: in the middle of the training ``node1`` goes, its agent, its workers and its disk. An
# empty machine takes its place and starts the same command. Nobody touches ``node0``:
#
# .. run::
#    :expect: Resuming after epoch 10
#    :show: 30 4
#
#    python docs/labs/nodes.py --nproc_per_node=1 --lose node1 multinode.py 30 10
#    ls node0 node1
#
# Here the system closes the connections of the killed processes, so those on ``node0`` notice.
# (They wait two seconds before they end, so that the first failure is seen first. A machine that
# loses its power closes nothing: they then wait for a timeout.) Their agent waits for a second node
# to come to the rendezvous. When it has, all start again, the new node asks who holds the newest
# checkpoint, and gets it over the network.

# %%
import re

import lab

log = lab.run("python docs/labs/nodes.py --nproc_per_node=1 --lose node1 multinode.py 30 10", "ls node0 node1")
ran = [(float(t), int(e)) for t, e in re.findall(r"([\d.]+) s  node\d \| Epoch +(\d+) \| loss", log)]
lost = float(re.search(r"([\d.]+) s  node1 \| --- lost", log)[1])
back = min(time for time, _ in ran if time > lost)

figure, axes = lab.picture(
    f"Epochs over time. After {lost:.0f} s a node is lost; {back - lost:.0f} s later training resumes."
)
axes.plot(*zip(*ran, strict=True), ".", markersize=5)
axes.axvspan(lost, back, color=lab.COLORS[1], alpha=0.15)
axes.annotate(f"one node gone: {back - lost:.0f} s", ((lost + back) / 2, 20), ha="center")
axes.set(xlabel="seconds since the start", ylabel="epoch")

# %% [markdown]
# One loss is fatal: the node named by ``--rdzv-endpoint``. Its agent holds the store through which the
# agents agree, and the others end with it:
#
# .. run::
#    :expect: RendezvousConnectionError: The connection to the C10d store has failed
#    :status: 1
#    :show: 1 1
#
#    python docs/labs/nodes.py --nproc_per_node=1 --lose node0 multinode.py 40 10
#
# Start the command again on all nodes, or have a scheduler do it: the checkpoints are there.
#
# Nodes with a network between them have more ways to fail. :doc:`launchers` says what stands behind each of
# these, and how long it takes at most; here are the figures of its tests:
#
# .. run::
#    :expect: a link is cut
#
#    cat tools/bench/results/faults.txt

# %% [markdown]
# What could go wrong
# -------------------
#
# **Nothing happens at all.** Each agent waits for the others, without a word: for two minutes where a
# name leads nowhere, a firewall closes the port or nobody has started the node of the endpoint, for ten
# where another node is awaited. The preflight of :doc:`launchers`, started on every node, says which it
# is. On every node, ``getent hosts node1`` must print the same address, and not one that begins with
# ``127.``.
#
# **Each node trains by itself.** With ``--standalone``, which suits one machine, every node is a
# whole of its own: two trainings, two times rank 0, no error. The loss does not show it, since each
# counts all 2,048 samples. ``hello.py`` does: ``WORLD_SIZE`` is 2 where it should be 4, and rank 0
# is there twice.
#
# .. run::
#    :expect: node1: rank 0: .*WORLD_SIZE=2
#
#    for node in node0 node1; do OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 launch/hello.py | sort | sed "s/^/$node: /"; done
#
# **A file that cannot be read.** If a node's own checkpoint is damaged the script refuses to start,
# in the words of :doc:`3_fault_tolerance`, even if others have a good one: a disk that returns half
# a file wants to be looked at.
#
# :doc:`symptoms` lists these and more by the text of their error.

# %% [markdown]
# The whole script
# ----------------
#
# .. lesson-script:: multinode
