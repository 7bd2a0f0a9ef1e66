"""A cluster in a box: try launchers and faults on nodes that are namespaces of one Linux machine.

Each node has its own host name, address, hosts file, processes and folder. The nodes share only the
switch between them. Needs root.

    with Cluster(2) as cluster:
        cluster.run("node1", ["torchrun", ...])
        cluster.cut("node2")
"""

from .cluster import Cluster

__all__ = ["Cluster"]
