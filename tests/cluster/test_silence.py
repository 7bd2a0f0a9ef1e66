"""Faults that close no connection: a cut link, a frozen process."""

import signal

from tests.cluster.training import BACK, NOTICED, SAVE_EVERY, Fault, record, repeated


def test_a_link_is_cut_and_healed(training, undisturbed):
    """TCP gives up after tcp_retries2 attempts, which by default takes a quarter of an hour."""
    for name in training.nodes.nodes:
        training.nodes.output(name, ["sh", "-c", "echo 5 >/proc/sys/net/ipv4/tcp_retries2"])
    training.start().reach(12)
    fault = Fault("a link is cut, tcp_retries2=5; then healed", training)
    training.nodes.cut("node2")
    assert training["node2"].wait(2 * NOTICED) != 0  # it does not reconnect to the store
    noticed = fault.clock.now - fault.moment
    training.nodes.heal("node2")
    training.start("node2")  # as its supervisor would
    back = fault.clock.wait_for("Resuming after epoch", fault.moment) - fault.moment
    record(fault.name, noticed, back)
    assert back < 2 * NOTICED + BACK, fault.clock.out
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY


def test_a_process_freezes(training, undisturbed):
    """Only the process group's timeout ends that wait, which takes one more line in the script."""
    for name in training.nodes.nodes:
        script = training.nodes.folder(name) / "multinode.py"
        text = script.read_text()
        limit = "timeout=__import__('datetime').timedelta(seconds=8)"
        changed = text.replace("(backend, ", f"(backend, {limit}, ")
        assert changed != text
        script.write_text(changed)
    training.start().reach(12)
    fault = Fault("a process is frozen, timeout of 8 s", training)
    training.signal("node2", "worker", signal.SIGSTOP)
    fault.went_on(8 + NOTICED)
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY
