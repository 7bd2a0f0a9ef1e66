# %% [markdown]
"""
Several nodes, started by hand without torchrun
===============================================
"""

# %% [markdown]
# **You will be able to** start one training on several machines without a launcher, read scripts
# that do it, and say what torchrun does instead.
#
# **You need** the script of :doc:`2_multigpu`. A :term:`node` is a machine.
#
# Many older scripts are started once on each node, as in ``main.py --nodes 2 --gpus 4 --nr 0
# --epochs 10``, where ``--nr`` is the number of the node. ``multigpu.py`` cannot be started like
# that. Its processes meet on ``localhost``, where no other node can find them. And it counts its
# processes from 0 on every machine, so two nodes would both have rank 0.

# %% [markdown]
# Naming the meeting place
# ------------------------
#
# .. lesson-diff:: nodes_by_hand
#    :edit: name-the-meeting-place
#    :confirmed: 1404b21c0229
#
#    ``--init`` says where the processes meet. :torch:`torch.distributed.init_process_group` takes
#    it as ``init_method``, a URL that may also carry the rank and the world size.
#
#    ``timeout`` limits the wait. Otherwise a rank on gloo waits 30 minutes for a node that never
#    comes. ``timeout`` also limits each :term:`collective`, so no rank may be five minutes late.
#
# There are three kinds of places:
#
# .. list-table::
#    :header-rows: 1
#    :widths: 19 27 27 27
#
#    * - the kind
#      - ``env://``
#      - ``tcp://node1:29500``
#      - ``file:///shared/store``
#    * - the place is in
#      - ``MASTER_ADDR`` and ``MASTER_PORT``, set in every shell
#      - the URL
#      - the URL
#    * - who listens
#      - rank 0, which must run on that node
#      - rank 0, which must run on that node
#      - no process
#    * - what is shared
#      - the network
#      - the network
#      - a folder whose file system has locks. The training itself needs the network, too
#    * - after a kill
#      - nothing is left
#      - nothing is left
#      - the file is left: delete it, or a later run may not meet there
#
# With a file, you need no free port. ``file:store`` is a file in the current folder:
#
# .. run::
#    :expect: rank 1 of 2, met by FileStore
#    :mark: met by
#
#    python -m tools.series run --probe nodes_by_hand@1 3 3 --init file:store
#    ls store || true
#
# The last rank to leave deletes the file.

# %% [markdown]
# Counting the ranks across nodes
# -------------------------------
#
# .. lesson-diff:: nodes_by_hand
#    :edit: count-across-nodes
#    :confirmed: 67dd945a62e2
#
#    The number from ``mp.spawn`` is now only the :term:`local rank`. The :term:`rank` is ``nr ×
#    gpus + local rank``. With two nodes of two processes, node 0 has the ranks 0 and 1, and node 1
#    has 2 and 3.
#
#    If ``--nr`` were not ``required``, but had the default 0, a node without the option would claim
#    the ranks of node 0, and all nodes would wait for the missing ranks.
#
# ``--gpus`` is the number of processes per node. This is one node alone:
#
# .. run::
#    :expect: Epoch 50 \| checkpoint saved
#    :show: 2 1
#
#    {nodes_by_hand}
#
# For two nodes, run one command on each, in any order. The commands differ only in ``--nr``. Here
# one machine plays both nodes. On two machines, ``MASTER_ADDR`` is the host name of node 0, and you
# choose the port. The four processes train the same model as four under torchrun:
#
# .. run::
#    :expect: node 0 \| Epoch 12 \| checkpoint[\s\S]*equal, bit for bit
#    :mark: equal, bit for bit
#
#    cat docs/labs/by_hand.sh
#    sh docs/labs/by_hand.sh
#    torchrun --standalone --nproc_per_node=4 multinode.py 12 12 | tail -n 1
#    python docs/labs/same.py nodes_by_hand.pt multinode.pt

# %% [markdown]
# Three mistakes
# --------------
#
# **A forgotten number**, as in the often copied ``main.py --nodes … --gpus … --epochs …``.
# ``nodes_by_hand.py`` ends at once:
#
# .. run::
#    :expect: required: --nr
#    :status: 2
#
#    python -m beyond.nodes_by_hand --nodes 2 --gpus 2 50 10
#
# **A node that never comes.** The node that waits for it says nothing more for five minutes. In this
# copy of the script it waits about five seconds:
#
# .. run::
#    :expect: cannot meet the other processes .*1/2 clients
#    :status: 1
#    :mark: clients joined
#
#    sed 's/minutes=5/seconds=5/' beyond/nodes_by_hand.py > impatient.py
#    python impatient.py --nodes 2 --gpus 1 --nr 0 --init tcp://localhost:$((20000 + $$ % 10000)) 50 10 2>&1 | tail -n 1
#
# **A number given twice.** If both nodes have the number 0, all processes wait for the ranks of
# node 1, and then end with ``cannot meet the other processes``, too.
#
# End the processes on all nodes before you start again, and delete the file, if there is one.

# %% [markdown]
# What torchrun does instead
# --------------------------
#
# - **Ranks by agreement.** The command is the same on all nodes, and the nodes agree on the
#   numbers, so none can be forgotten or given twice.
# - **Restarts.** If a process dies, torchrun starts all processes again, on all nodes, up to
#   ``--max-restarts`` times. By hand, ``mp.spawn`` ends its own processes, those of other nodes
#   lose their connection and end, and you start everything again. This script then begins at the
#   first epoch, because it loads no checkpoint.
#
# Slurm and ``mpirun`` number the processes, too: :doc:`launchers`.

# %% [markdown]
# What you can do now
# -------------------
#
# .. page-end:: beyond_nodes_by_hand
#    :next: :doc:`4_multinode`, where the nodes agree on their numbers
#
#    You can now start nodes by hand, and say where they meet and which ranks they have.
#
#    .. fold:: Three nodes have four GPUs each. Which ranks does node 2 have?
#
#       2 × 4 + 0 to 2 × 4 + 3, so 8 to 11. The world size is 12.
#
#    .. fold:: Node 0 has four GPUs and node 1 has two. Why does the formula fail?
#
#       Node 0 computes the ranks 0 to 3 of 8, and node 1 the ranks 2 and 3 of 4. They disagree on
#       the world size, and two ranks exist twice.
