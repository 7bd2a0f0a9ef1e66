"""Nodes on one machine: an agent per node, each in its own folder. They share only a port."""

from tests.processes import Process
from tools.processes import free_port


def start(folders, *args, ranks=None, nproc=1, restarts=3, **options):
    """Start `multinode.py` on one node for each folder.

    As with launch/torchrun_env.sh, the nodes get their ranks from the c10d rendezvous. `ranks`
    fixes the ranks by the static rendezvous, for tests that must know which node has rank 0.
    """
    port = free_port()
    found = []
    for number, folder in enumerate(folders):
        folder.mkdir(exist_ok=True)
        flags = [f"--nnodes={len(folders)}", f"--max-restarts={restarts}"]
        if ranks:
            flags += [f"--node-rank={ranks[number]}", "--master-addr=localhost"]
            flags += [f"--master-port={port}"]
        else:
            flags += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}"]
            flags += ["--rdzv-conf=keep_alive_interval=1,keep_alive_max_attempt=4"]
        options |= {"cwd": folder, "nproc": nproc, "launcher": flags}
        found.append(Process("multinode", *args, **options))
    return found


def finish(nodes):
    """Wait for all nodes; returns their exit statuses."""
    try:
        return [node.wait() for node in nodes]
    finally:
        for node in nodes:
            node.kill()
