"""python -m tools.cluster: a cluster in a box, for trying launchers and faults. Needs root.

up 3               start three nodes: node1, node2, node3
up 3 --with slurm  and Slurm on them, gridengine, or ssh (for Open MPI too)
run node1 CMD...   run a command on a node, in its folder; `all` runs it on every node at once
cut node2          unplug its network; heal node2 plugs it in again
kill node2         all its processes die at once; replace node2 puts a new machine there
list               the nodes, with their addresses and folders
down               end everything
"""

import argparse
import sys
from functools import partial

from tools.errors import UserError, exit_status
from tools.processes import FOREVER, Process

from . import gridengine, slurm, ssh
from .cluster import Cluster

SCHEDULERS = {"slurm": slurm, "gridengine": gridengine, "ssh": ssh}


def main(arguments: list[str] | None = None) -> int:
    """Returns the status of what was run, or 2 for a mistake."""
    options = _parser().parse_args(arguments)
    return exit_status(lambda: options.run(options), "cluster: ")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tools.cluster", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--name", default="default", help="for more than one cluster at a time")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name, run):
        sub = commands.add_parser(name)
        sub.set_defaults(run=run)
        return sub

    sub = add("up", _up)
    sub.add_argument("size", type=int)
    sub.add_argument("--with", dest="scheduler", choices=SCHEDULERS)
    sub = add("run", _run)
    sub.add_argument("node")
    sub.add_argument("words", nargs=argparse.REMAINDER, metavar="CMD")
    for name in ("cut", "heal", "kill", "replace"):
        add(name, _to_a_node(name)).add_argument("node")
    add("list", _list)
    add("down", lambda options: Cluster(name=options.name).down())
    return parser


def _up(options):
    cluster = Cluster(options.size, options.name)
    try:
        cluster.up()
        if options.scheduler:
            SCHEDULERS[options.scheduler].start(cluster)
    except BaseException:
        cluster.down()
        raise
    _list(options)


def _list(options):
    cluster = Cluster.open(options.name)
    for name in cluster.nodes:
        print(f"{name}  {cluster.address(name)}  {cluster.folder(name)}")


def _to_a_node(name):
    return lambda options: getattr(Cluster.open(options.name), name)(options.node)


def _run(options):
    cluster = Cluster.open(options.name)
    if not options.words:
        raise UserError("nothing to run: python -m tools.cluster run node1 hostname")
    if options.node != "all":
        return cluster.run(options.node, options.words).wait()
    running = [
        Process(**cluster.command(name, options.words), say=partial(_say, name))
        for name in cluster.nodes
    ]
    return max(process.wait(FOREVER) for process in running)


def _say(name, line):
    sys.stdout.write(f"{name}: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
