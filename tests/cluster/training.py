"""A training on two nodes, and faults: when do the others notice?"""

import os
import re
import time

from tests.cluster.jobs import Command, lay
from tests.faults import most_repeated, same

EPOCHS, SAVE_EVERY = 60, 5
ARGS = ["multinode.py", str(EPOCHS), str(SAVE_EVERY), "--batch_size", "16"]
LAUNCH = ["sh", "launch/torchrun_c10d.sh"]
PATIENT = "keep_alive_interval=1,keep_alive_max_attempt=20"  # in place of 4 attempts
ENV = {"NNODES": "2", "ENDPOINT": "node1:29500"}
# Bounds for a busy machine. By default, a lost connection goes unnoticed for a quarter of an hour.
NOTICED = 240  # seconds until the others end their workers, if a death closes connections
BACK = 240  # seconds from the fault until training continues


class Training:
    """The lesson on two nodes, in folders that they do not share.

    An agent that is not heard for four seconds is given up. A busy machine may keep one silent for
    that long, so these agents wait for twenty, unless we measure.
    """

    def __init__(self, nodes):
        self.nodes, self.commands, self.env, self.args = nodes, {}, ENV, ARGS
        for node in nodes.nodes:
            self.lay(node)

    def lay(self, node):
        folder = self.nodes.folder(node)
        lay(folder, "launch")
        recipe = folder / "launch" / "torchrun_env.sh"
        text = recipe.read_text()
        assert PATIENT.replace("20", "4") in text
        if "CLUSTER_RECORD" not in os.environ:
            recipe.write_text(text.replace(PATIENT.replace("20", "4"), PATIENT))

    def start(self, *names):
        for name in names or self.nodes.nodes:
            self.commands[name] = Command(self.nodes, name, [*LAUNCH, *self.args], self.env)
        return self

    def __getitem__(self, name):
        return self.commands[name]

    def reach(self, epoch, name="node1"):
        """Wait until an epoch has run. Returns the seconds on the node's clock."""
        return self[name].wait_for(rf"Epoch +{epoch} \| loss")

    def replace(self, name):
        """Replace a node by an empty machine, and run the same command on it."""
        self.nodes.replace(name)
        self.lay(name)
        self.start(name)

    def pids(self, name, what):
        """The node's pids of torchrun ("agent") or of its children ("worker")."""
        script = r'for p in /proc/[0-9]*; do echo "${p#/proc/}" "$(tr "\0" " " <$p/cmdline)"; done'
        found = self.nodes.output(name, ["sh", "-c", script]).splitlines()
        agents = [line for line in found if "/torchrun " in line]
        workers = [line for line in found if "multinode.py" in line and line not in agents]
        workers = [line for line in workers if re.match(r"\d+ \S*python\S* -u ", line)]
        return [line.split()[0] for line in (agents if what == "agent" else workers)]

    def signal(self, name, what, sign):
        pids = self.pids(name, what)
        assert pids, f"no {what} on {name}"
        self.nodes.output(name, ["kill", f"-{int(sign)}", *pids])

    def ends_like(self, reference):
        """Check that all nodes end well, with the reference's checkpoint and no process left."""
        assert [self[name].wait() for name in self.nodes.nodes] == [0, 0], self["node1"].out
        files = [self.nodes.folder(name) / "multinode.pt" for name in self.nodes.nodes]
        assert same(*files) and same(files[0], reference)
        for name in self.nodes.nodes:
            assert self.pids(name, "agent") == self.pids(name, "worker") == []


class Fault:
    """The next thing done to a training. node1 has noticed it when its current workers end.

    CLUSTER_RECORD names a file; this appends the numbers of the page of launchers to it.
    """

    def __init__(self, name, training):
        self.name, self.training, self.clock = name, training, training["node1"]
        self.after = None  # seconds until node1 noticed
        self.before = training.pids("node1", "worker")
        assert self.before, self.clock.out
        self.moment = self.clock.now

    def noticed(self, limit=NOTICED):
        """Seconds until node1 noticed. Call this before you do anything else."""
        there = " || ".join(f"kill -0 {pid}" for pid in self.before)
        gone = ["sh", "-c", f"({there}) 2>/dev/null && echo there"]
        while self.training.nodes.output("node1", gone):
            assert self.clock.now - self.moment < limit, self.clock.out
            time.sleep(0.05)
        self.after = self.after or self.clock.now - self.moment
        return self.after

    def went_on(self, limit=NOTICED):
        noticed = self.noticed(limit)
        back = self.clock.wait_for("Resuming after epoch", self.moment) - self.moment
        record(self.name, noticed, back)
        assert back < limit + BACK, self.clock.out


def record(name, noticed, back=None):
    if path := os.environ.get("CLUSTER_RECORD"):
        again = f"training {back:4.1f} s" if back else "started again by hand"
        with open(path, "a") as file:
            file.write(f"{name:42} noticed {noticed:4.1f} s, {again}\n")


def repeated(*commands):
    return most_repeated([line for command in commands for line in command.lines], SAVE_EVERY)
