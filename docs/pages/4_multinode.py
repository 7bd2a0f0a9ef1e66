# %% [markdown]
"""
Multi-node training
===================
"""

# %% [markdown]
# **You will be able to** run one training on several machines that share nothing but a network, and
# to replace a lost one.
#
# **You need** the script of :doc:`3_fault_tolerance`, and a copy of the scripts on every
# :term:`node`, that is, on every machine.
#
# Start the same command on every node, where ``node1`` is the name of the node at which all of them
# meet:
#
# .. not-run:: node1 is a machine of yours; below, this page plays two nodes on one machine
#
#    {multinode}
#
# ``--nnodes=2`` is the number of nodes. ``--rdzv-backend=c10d --rdzv-endpoint=node1:29500`` says
# where their :term:`agents <agent>` meet: the agent on ``node1`` opens a :term:`store` at port
# 29500, and the other agents connect to it. In this meeting, the :term:`rendezvous`, the agents
# agree on the ranks of all workers. They meet again at each restart, and then another node may have
# rank 0 and print the loss. Nodes may start different numbers of processes, as with
# ``--nproc_per_node=gpu``.
#
# Under Slurm, Open MPI or Kubernetes only the launcher differs: :doc:`launchers`.

# %% [markdown]
# The short command
# -----------------
#
# ``launch/torchrun_env.sh`` sets torchrun's other options through variables. After
# ``ENDPOINT=node1:29500 . launch/torchrun_env.sh``, the command
# ``torchrun --nnodes=2 multinode.py`` is enough. Each node then starts one process. For two, write
# ``NPROC=2 ENDPOINT=…``.
#
# Without ``torchrun_env.sh``, this short command waits at its own machine's address, and prints
# nothing. After 15 minutes it fails. Here ``PET_RDZV_CONF=timeout=5`` shortens the wait:
#
# .. run::
#    :expect: 1/2 clients joined
#    :status: 1
#
#    PET_RDZV_CONF=timeout=5 torchrun --nnodes=2 multinode.py 3 3 2>&1 | grep Error:

# %% [markdown]
# Two nodes on one machine
# ------------------------
#
# ``nodes.py`` starts two agents in the folders ``node1`` and ``node2``, which share nothing but a
# port. The lines with ``+`` are what each node runs (here ``sort`` has swapped them). ``hello.py``
# prints the numbers that ``torchrun`` gives to each process:
#
# .. run::
#    :expect: node2 \| rank 3: GROUP_RANK=1 +LOCAL_RANK=1
#    :mark: rank [23]:
#
#    python docs/labs/nodes.py launch/hello.py | sort -k 5
#
# There are four processes, with :term:`rank` 0 to 3. ``GROUP_RANK`` is the number of the node. A
# process takes the GPU of its :term:`local rank`, so ``ddp_setup`` already works on several nodes.
#
# .. diagram:: ranks
#
#    The rank is unique among all processes. The local rank starts again at 0 on each node.

# %% [markdown]
# Saving on every node
# --------------------
#
# Here is the unchanged script of the last page on two nodes:
#
# .. run::
#    :expect: Epoch +4 \| checkpoint saved[\s\S]*node2:\n*\Z
#    :mark: ^node2:
#
#    python docs/labs/nodes.py multigpu_torchrun.py 4 2
#    ls node1 node2
#
# The only checkpoint is that of rank 0, on the disk of ``node1``. If ``node1`` is lost, so is the
# training.
#
# .. lesson-diff:: multinode
#    :edit: save-on-every-node
#    :confirmed: e9491126ee08
#
#    On each node, the process with local rank 0 saves. ``dist.get_node_local_rank()`` returns the
#    value of ``LOCAL_RANK``.
#
#    After each step all ranks hold the same weights and momentum, so all nodes write the same
#    checkpoint.
#
# .. run::
#    :expect: node2 \| Epoch +4 \| checkpoint saved
#    :mark: ^node2
#
#    python -m tools.series run multinode@1 4 2
#    ls node1 node2

# %% [markdown]
# Resuming from the newest checkpoint
# -----------------------------------
#
# Now the nodes can hold different checkpoints, for example if one was killed before it saved, or
# has a new, empty disk. Here only ``node2`` has a checkpoint, of 10 epochs. (From here on,
# ``nodes.py`` starts one process per node.)
#
# .. run::
#    :expect: node1 \| Epoch +1 \|[\s\S]*nothing for 5 s
#    :status: 124
#    :mark: Epoch +1 \||nothing for
#
#    mkdir node2
#    python single_gpu.py 10 10 --checkpoint_path node2/stage1.pt | tail -n 1
#    python -m tools.series show multinode@1 > stage1.py
#    python docs/labs/nodes.py --nproc_per_node=1 --patience 5 stage1.py 15 5
#
# ``node1`` starts at epoch 1 with a new model. ``node2`` resumes at epoch 11 with a trained one.
# DDP still averages the gradients of these different models. After five epochs ``node2`` is done
# and waits at the barrier, while ``node1`` waits for gradients. Here ``--patience 5`` ends the
# hang.
#
# .. lesson-diff:: multinode
#    :edit: resume-from-the-newest
#    :confirmed: ea9ac0b4acbb
#
#    :torch:`torch.distributed.all_gather_object` collects the number of epochs from every rank, in
#    the order of the ranks, so every rank finds the same maximum. The first rank with this maximum
#    broadcasts its whole checkpoint to all others; NCCL sends it from GPU memory to GPU memory.
#    :torch:`torch.distributed.broadcast_object_list` takes a list because it replaces the list's
#    contents with what it receives.
#
#    DDP's own broadcast is not enough. It comes earlier, in DDP's constructor, and
#    ``_load_checkpoint`` then overwrites the weights on each node that has a file. DDP also sends
#    only the weights, without the momentum and the epoch.
#
# .. run::
#    :expect: node1 \| Resuming after epoch 10
#    :mark: Resuming
#
#    mkdir node2
#    python single_gpu.py 10 10 --checkpoint_path node2/multinode.pt | tail -n 1
#    python docs/labs/nodes.py --nproc_per_node=1 multinode.py 15 5
#
# ``node1`` had no checkpoint, and received that of ``node2`` over the network.
#
# .. diagram:: two-nodes
#
#    The agents meet at the store of ``node1``. Gradients and the newest checkpoint go from worker
#    to worker.

# %% [markdown]
# Losing a node
# -------------
#
# Now ``node2`` is lost with its agent, its worker and its disk. An empty machine takes its place
# and starts the same command:
#
# .. run::
#    :alone:
#    :expect: Resuming after epoch 10
#    :show: 28 4
#    :mark: ---|Resuming
#
#    python docs/labs/nodes.py --nproc_per_node=1 --lose node2 multinode.py 30 10
#    ls node1 node2
#
# The worker on ``node1`` loses its connection and fails. Its agent waits at the rendezvous for a
# second node, and gives up if none comes in ten minutes. Here one comes at once, but training waits
# some seconds until the lost agent, whose last sign of life in the store gets old, counts as gone.
# (So the clocks of the nodes must agree; ``launch/check_cluster.py`` checks them.) Then both agents
# start their workers, and one of the three restarts that ``torchrun_env.sh`` allows is used up. The
# new ``node2`` receives the checkpoint of ``node1`` over the network.

# %%
import re

import lab

log = lab.run("python docs/labs/nodes.py --nproc_per_node=1 --lose node2 multinode.py 30 10", "ls node1 node2")
ran = [(float(t), int(e)) for t, e in re.findall(r"([\d.]+) s  node\d \| Epoch +(\d+) \| loss", log)]
lost = float(re.search(r"([\d.]+) s  node2 \| --- lost", log)[1])
back = min(time for time, _ in ran if time > lost)

figure, axes = lab.picture(
    f"Epochs over time. After {lost:.1f} s a node is lost; {back - lost:.1f} s later training resumes."
)
axes.plot(*zip(*ran, strict=True), ".", markersize=5)
axes.axvspan(lost, back, color=lab.COLORS[1], alpha=0.15)
axes.annotate(f"no training: {back - lost:.1f} s", ((lost + back) / 2, 20), ha="center")
axes.set(xlabel="seconds since the start", ylabel="epoch")

# %% [markdown]
# One node must not be lost: the node of ``--rdzv-endpoint``, here ``node1``. Its agent holds the
# store, and without the store the other agents end:
#
# .. run::
#    :expect: RendezvousConnectionError: The connection to the C10d store has failed
#    :mark: RendezvousConnectionError
#    :status: 1
#    :show: 2 1
#
#    python docs/labs/nodes.py --nproc_per_node=1 --lose node1 multinode.py 40 10
#
# Start the command again on all nodes, or have a scheduler do it. The other nodes still have their
# checkpoints. "When something dies" in :doc:`launchers` has measured times.

# %% [markdown]
# What could go wrong
# -------------------
#
# **Nothing happens at all.** Each agent waits for the others: 15 minutes without an endpoint, ten
# minutes if another node is missing, and one to three minutes if a wrong name, a firewall or a
# missing ``node1`` keeps it from the endpoint. ``launch/check_cluster.py``, run on every node, says
# what to look at; if it says ready, check your command's endpoint (:doc:`launchers`).
#
# **Each node trains by itself.** ``--standalone`` is for one machine. On two nodes it starts two
# separate trainings without an error, each over all 2,048 samples. ``hello.py`` shows it, because
# ``WORLD_SIZE`` is 2 instead of 4.
#
# **A checkpoint that cannot be read.** If one node's file is damaged, the script refuses to start.
# Check that disk, then move the file away: the node receives another node's checkpoint.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: 4_multinode
#    :next: :doc:`where_the_time_goes`, which says what makes a run slow, or :doc:`launchers` to start it on your cluster
#    :also: torchrun <torch.distributed.run>, torch.distributed.TCPStore
#
#    You can now train on several machines, and replace one of them during the run.
#
#    .. fold:: ``node1`` has a checkpoint of 20 epochs, ``node2`` one of 10. Where do they resume?
#
#       Both resume after epoch 20, because the first rank with 20 broadcasts its whole checkpoint.
#       The next save replaces the file of ``node2``.
#
#    .. fold:: Some of your nodes may be taken away at any time. Which node do you name in ``--rdzv-endpoint``?
#
#       One that stays, because its agent holds the store. The loss of any other node costs a
#       restart and the epochs since the last save, if a node takes its place within ten minutes.
