"""What kills a training on real nodes, when the others notice, and what it ends with.

The bounds are those that the page of launchers states; they are bounds, and what is usual is less.
"""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.cluster.jobs import Command, lay
from tests.faults import most_repeated, same
from tests.processes import ROOT, STANDALONE, Process

EPOCHS, SAVE_EVERY = 60, 5
ARGS = ["multinode.py", str(EPOCHS), str(SAVE_EVERY), "--batch_size", "16"]
LAUNCH = ["sh", str(ROOT / "launch" / "torchrun_c10d.sh")]
ENV = {"NNODES": "2", "ENDPOINT": "node1:29500"}
NOTICED = 15  # seconds until the others end their workers, for a death that closes connections
BACK = 60  # seconds from the fault until training goes on


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    with Process("multinode", *ARGS[1:], cwd=folder, launcher=STANDALONE) as process:
        assert process.wait() == 0, process.tail
    return folder / "multinode.pt"


class Training:
    """The lesson on two nodes, in folders that they do not share."""

    def __init__(self, nodes):
        self.nodes, self.commands, self.env = nodes, {}, ENV
        for node in nodes.nodes:
            lay(nodes.folder(node))

    def start(self, *names):
        for name in names or self.nodes.nodes:
            self.commands[name] = Command(self.nodes, name, [*LAUNCH, *ARGS], self.env)
        return self

    def __getitem__(self, name):
        return self.commands[name]

    def reach(self, epoch, name="node1"):
        """Wait until an epoch has run; returns the seconds of node's clock."""
        return self[name].wait_for(rf"Epoch +{epoch} \| loss")

    def replace(self, name):
        """An empty machine with the same name, and the same command on it."""
        self.nodes.replace(name)
        lay(self.nodes.folder(name))
        self.start(name)

    def pids(self, name, what):
        """On the node: of torchrun ("agent") or of its children ("worker")."""
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
        """All end well and alike, with no process left, and no more repeated than was unsaved."""
        assert [self[name].wait() for name in self.nodes.nodes] == [0, 0], self["node1"].out
        files = [self.nodes.folder(name) / "multinode.pt" for name in self.nodes.nodes]
        assert same(*files) and same(files[0], reference)
        for name in self.nodes.nodes:
            assert self.pids(name, "agent") == self.pids(name, "worker") == []


@pytest.fixture
def training(cluster):
    return Training(cluster(2))


class Fault:
    """What is done to a training next; it is noticed when the workers that node1 has now have ended.

    With CLUSTER_RECORD, the path of a file, the figures of the page of launchers are added to it.
    """

    def __init__(self, name, training):
        self.name, self.training, self.clock = name, training, training["node1"]
        self.before = training.pids("node1", "worker")
        self.moment = self.clock.now

    def noticed(self, limit=NOTICED):
        """Seconds until it was."""
        there = " || ".join(f"kill -0 {pid}" for pid in self.before)
        gone = ["sh", "-c", f"({there}) 2>/dev/null && echo there"]
        while self.training.nodes.output("node1", gone):
            assert self.clock.now - self.moment < limit, self.clock.out
            time.sleep(0.05)
        return self.clock.now - self.moment

    def went_on(self, limit=NOTICED):
        noticed = self.noticed(limit)
        back = self.clock.wait_for("Resuming after epoch", self.moment) - self.moment
        record(self.name, noticed, back)
        assert back < limit + BACK, self.clock.out


def record(name, noticed, back=None):
    if path := os.environ.get("CLUSTER_RECORD"):
        again = f"training again after {back:4.1f} s" if back else "started again by hand"
        with open(path, "a") as file:
            file.write(f"{name:44} noticed after {noticed:4.1f} s, {again}\n")


def repeated(*commands):
    return most_repeated([text for command in commands for _, text in command.lines], SAVE_EVERY)


def test_a_worker_is_killed(training, undisturbed):
    training.start().reach(12)
    fault = Fault("a worker is killed", training)
    training.signal("node2", "worker", signal.SIGKILL)
    fault.went_on()
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY


def test_an_agent_is_killed_and_its_workers_end(training, undisturbed):
    training.start().reach(12)
    fault = Fault("an agent is killed, and started again", training)
    training.signal("node2", "agent", signal.SIGKILL)
    assert training["node2"].wait(NOTICED) != 0  # its workers have let go of its output, too
    assert training.pids("node2", "worker") == []
    training.start("node2")  # as its supervisor would
    fault.went_on()
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY


def test_a_node_dies_and_an_empty_one_takes_its_place(training, undisturbed):
    training.start().reach(12)
    fault = Fault("a node dies, an empty one takes its place", training)
    training.nodes.kill("node2")
    training.replace("node2")
    fault.went_on()
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY


def test_the_node_that_all_meet_at_dies(training, undisturbed):
    """The others end, and say so; started again, all go on from the newest checkpoint."""
    training.start().reach(12)
    lost, moment = training["node1"], training["node2"].now
    training.nodes.kill("node1")
    assert training["node2"].wait(2 * NOTICED) == 1
    record("the node that all meet at dies", training["node2"].now - moment)
    training.replace("node1")
    training.start("node2")
    training["node1"].wait_for("Resuming after epoch 1[05]")
    training.ends_like(undisturbed)
    assert repeated(lost, training["node1"]) <= SAVE_EVERY


def test_a_link_is_cut_and_healed(training, undisturbed):
    """TCP gives up after tcp_retries2 attempts; a quarter of an hour, if nobody shortens it."""
    for name in training.nodes.nodes:
        training.nodes.output(name, ["sh", "-c", "echo 5 >/proc/sys/net/ipv4/tcp_retries2"])
    training.start().reach(12)
    fault = Fault("a link is cut, tcp_retries2=5; then healed", training)
    training.nodes.cut("node2")
    fault.noticed(2 * NOTICED)
    training.nodes.heal("node2")
    fault.went_on(2 * NOTICED)
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY


def test_a_process_freezes(training, undisturbed):
    """Only a time limit of the process group ends that wait: one line more in the script."""
    for name in training.nodes.nodes:
        script = training.nodes.folder(name) / "multinode.py"
        text = script.read_text()
        limit = "timeout=__import__('datetime').timedelta(seconds=8)"
        changed = text.replace("(device_id=", f"({limit}, device_id=")
        assert changed != text
        script.write_text(changed)
    training.start().reach(12)
    fault = Fault("a process is frozen, timeout of 8 s", training)
    training.signal("node2", "worker", signal.SIGSTOP)
    fault.went_on(8 + NOTICED)
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY


def test_sigterm(training, undisturbed):
    """As a scheduler ends a job: every agent is told. All end within the grace."""
    training.start().reach(12)
    for name in training.nodes.nodes:
        training.signal(name, "agent", signal.SIGTERM)
    first, moment = training["node1"], training["node1"].now
    assert all(training[name].wait(30) for name in training.nodes.nodes)
    record("SIGTERM to every agent", first.now - moment)
    training.start()
    training["node1"].wait_for("Resuming after epoch")
    training.ends_like(undisturbed)
    assert repeated(first, training["node1"]) <= SAVE_EVERY


def test_with_fewer_nodes_meanwhile(training):
    """NNODES=1:2: one node goes on alone, and says what that means for the batch."""
    training.env = {**ENV, "NNODES": "1:2"}
    training.start().reach(12)
    fault = Fault("a node dies, NNODES=1:2", training)
    training.nodes.kill("node2")
    fault.went_on()
    clock = fault.clock
    assert clock.wait() == 0, clock.out
    resumed = [text for _, text in clock.lines if text.startswith("Resuming")]
    assert resumed[0].endswith(", 16 samples a step")  # with both it was 32
    last = [text for _, text in clock.lines if "| loss" in text][-1]
    assert float(re.search(r"loss ([\d.]+)", last)[1]) < 0.03, last
    assert Path(training.nodes.folder("node1") / "multinode.pt").exists()
