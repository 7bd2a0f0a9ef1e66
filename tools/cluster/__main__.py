"""python -m tools.cluster 3: a cluster in a box, to try launchers and faults on. Needs root.

This starts three nodes: node1, node2 and node3. --with installs slurm, gridengine or ssh (also for
Open MPI) on them. Then it reads these commands; Ctrl-D ends everything:

run node1 CMD...     run a command on a node, in its folder; `all` runs it on every node at once
start node1 CMD...   the same, but do not wait for its end
cut node2            unplug its network; heal node2 plugs it in again
limit node2 10mbit 5ms
                     limit what it sends and receives, and delay it; limit node2 lifts both
kill node2           kill all its processes at once; replace node2 puts a new machine there
"""

import argparse
import cmd
import contextlib
import shlex
import signal
import sys
from functools import partial

from tools.errors import UserError, exit_status
from tools.processes import FOREVER, Process

from . import gridengine, slurm, ssh
from .cluster import Cluster

SCHEDULERS = {"slurm": slurm, "gridengine": gridengine, "ssh": ssh}


def main():
    parser = argparse.ArgumentParser(
        prog="python -m tools.cluster", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("size", type=int, help="how many nodes")
    parser.add_argument("--with", dest="scheduler", choices=SCHEDULERS)
    options = parser.parse_args()
    for sign in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal leaves nothing running
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    return exit_status(lambda: _serve(options), "cluster: ")


def _serve(options):
    with Cluster(options.size) as cluster:
        if options.scheduler:
            SCHEDULERS[options.scheduler].start(cluster)
        for name in cluster.nodes:
            print(f"{name}  {cluster.address(name)}  {cluster.folder(name)}")
        prompt = Prompt(cluster)
        with prompt.started:  # they end first, or say that their node is gone
            prompt.cmdloop()


class Prompt(cmd.Cmd):
    prompt = "cluster> "

    def __init__(self, cluster):
        super().__init__()
        self.do_cut, self.do_heal = cluster.cut, cluster.heal
        self.do_kill, self.do_replace = cluster.kill, cluster.replace
        self.cluster, self.started = cluster, contextlib.ExitStack()

    def onecmd(self, line):
        try:
            return super().onecmd(line)
        except KeyboardInterrupt:  # ends the command that `run` waits for
            print()
        except (UserError, ValueError) as error:  # ValueError: an unclosed quote
            print(error)

    def do_run(self, line):
        with contextlib.ExitStack() as ended:
            for process in [ended.enter_context(process) for process in self._start(line)]:
                process.wait(FOREVER)

    def do_limit(self, line):
        words = line.split()
        if not 1 <= len(words) <= 3:
            raise UserError("limit what? limit node2 10mbit, or limit node2 10mbit 5ms")
        self.cluster.limit(*words)

    def do_start(self, line):
        for process in self._start(line):
            self.started.enter_context(process)

    def _start(self, line):
        node, *words = shlex.split(line) or [""]
        if not words:
            raise UserError("nothing to run: run node1 hostname")
        names = self.cluster.nodes if node == "all" else [node]
        return [
            Process(**self.cluster.command(name, words), say=partial(_say, name)) for name in names
        ]

    def do_help(self, _):
        print(__doc__.partition("\n\n")[2])

    def do_EOF(self, _):
        return True

    def emptyline(self):
        pass


def _say(name, line):
    sys.stdout.write(f"{name}: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
