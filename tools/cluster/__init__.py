"""A cluster in a box: nodes as namespaces of one Linux machine, to try launchers and faults on.

Each node has a host name, an address, a hosts file, processes and a folder of its own; they share
nothing but the switch between them. Needs root.

    with Cluster(2) as cluster:
        cluster.run("node1", ["torchrun", ...])
        cluster.cut("node2")
"""

from .cluster import Cluster

__all__ = ["Cluster"]
