"""What goes silent on real nodes, or goes in peace: nobody closes a connection, or all are told."""

import re
import signal

from tests.cluster.training import ARGS, BACK, ENV, NOTICED, SAVE_EVERY, Fault, record, repeated


def test_a_link_is_cut_and_healed(training, undisturbed):
    """TCP gives up after tcp_retries2 attempts; a quarter of an hour, if nobody shortens it."""
    for name in training.nodes.nodes:
        training.nodes.output(name, ["sh", "-c", "echo 5 >/proc/sys/net/ipv4/tcp_retries2"])
    training.start().reach(12)
    fault = Fault("a link is cut, tcp_retries2=5; then healed", training)
    training.nodes.cut("node2")
    assert training["node2"].wait(2 * NOTICED) != 0  # it does not connect to the store again
    noticed = fault.clock.now - fault.moment
    training.nodes.heal("node2")
    training.start("node2")  # as its supervisor would
    back = fault.clock.wait_for("Resuming after epoch", fault.moment) - fault.moment
    record(fault.name, noticed, back)
    assert back < 2 * NOTICED + BACK, fault.clock.out
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
    agents = {name: training.pids(name, "agent") for name in training.nodes.nodes}
    first, moment = training["node1"], training["node1"].now
    for name, pids in agents.items():
        training.nodes.output(name, ["kill", "-TERM", *pids])
    assert all(training[name].wait(30) for name in training.nodes.nodes)
    record("SIGTERM to every agent", first.now - moment)
    training.start()
    training["node1"].wait_for("Resuming after epoch")
    training.ends_like(undisturbed)
    assert repeated(first, training["node1"]) <= SAVE_EVERY


def test_with_fewer_nodes_meanwhile(training):
    """NNODES=1:2: one goes on alone, and says what that means for the batch, until one is back."""
    training.env, training.args = {**ENV, "NNODES": "1:2"}, ["multinode.py", "110", *ARGS[2:]]
    training.start().reach(12)
    fault = Fault("a node dies, NNODES=1:2", training)
    training.nodes.kill("node2")
    fault.went_on()
    training.replace("node2")
    clock = fault.clock
    assert [training[name].wait() for name in training.nodes.nodes] == [0, 0], clock.out
    said = "\n".join(text for command in training.commands.values() for _, text in command.lines)
    resumed = re.findall(r"Resuming after epoch \d+, (\d+) samples a step", said)
    assert resumed == ["16", "32"]  # with both it was 32
    last = float(re.search(r"Epoch 110 \| loss ([\d.]+)", said)[1])
    assert last < 0.03
    assert repeated(clock, training["node2"]) <= SAVE_EVERY
    assert training.pids("node1", "agent") == training.pids("node1", "worker") == []
