"""Nodes that leave in good order, and the training that continues without them."""

import re

from tests.cluster.training import ARGS, ENV, SAVE_EVERY, Fault, record, repeated


def test_sigterm(training, undisturbed):
    """A scheduler ends a job by SIGTERM to every agent. All end within the grace time."""
    training.start().reach(12)
    agents = {name: training.pids(name, "agent") for name in training.nodes.nodes}
    first, moment = training["node1"], training["node1"].now
    for name, pids in agents.items():
        training.nodes.output(name, ["kill", "-TERM", *pids])
    assert all(training[name].wait() for name in training.nodes.nodes)
    record("SIGTERM to every agent", first.now - moment)
    training.start()
    training["node1"].wait_for("Resuming after epoch")
    training.ends_like(undisturbed)
    assert repeated(first, training["node1"]) <= SAVE_EVERY


def test_with_fewer_nodes_meanwhile(training):
    """NNODES=1:2: one node trains alone until another joins it."""
    training.env, training.args = {**ENV, "NNODES": "1:2"}, ["multinode.py", "400", *ARGS[2:]]
    training.start().reach(12)
    fault = Fault("a node dies, NNODES=1:2", training)
    training.nodes.kill("node2")
    fault.went_on()
    training.replace("node2")
    clock = fault.clock
    assert [training[name].wait() for name in training.nodes.nodes] == [0, 0], clock.out
    said = "".join(command.out for command in training.commands.values())
    assert len(re.findall(r"Resuming after epoch \d+", said)) >= 2  # with one node, then with two
    last = float(re.search(r"Epoch 400 \| loss ([\d.]+)", said)[1])
    assert last < 0.03
    assert repeated(clock, training["node2"]) <= SAVE_EVERY
    assert training.pids("node1", "agent") == training.pids("node1", "worker") == []
