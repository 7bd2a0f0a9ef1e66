"""Kill workers and nodes: when do the others notice, and with which weights does training end?"""

import signal

from tests.cluster.training import NOTICED, SAVE_EVERY, Fault, record, repeated


def test_a_worker_is_killed_then_an_agent(training, undisturbed):
    training.start().reach(12)
    fault = Fault("a worker is killed", training)
    training.signal("node2", "worker", signal.SIGKILL)
    fault.went_on()
    training.reach(22)
    fault = Fault("an agent is killed, and started again", training)
    training.signal("node2", "agent", signal.SIGKILL)
    fault.noticed()
    assert training["node2"].wait(NOTICED) != 0  # its workers have closed its output, too
    assert training.pids("node2", "worker") == []
    training.start("node2")  # as its supervisor would
    fault.went_on()
    training.ends_like(undisturbed)
    assert repeated(fault.clock) <= SAVE_EVERY


def test_a_node_dies_and_is_replaced_then_the_one_that_all_meet_at(training, undisturbed):
    """Without the rendezvous node, the others end and say so. Restarted, all resume."""
    training.start().reach(12)
    fault = Fault("a node dies, an empty one takes its place", training)
    training.nodes.kill("node2")
    fault.noticed()
    training.replace("node2")
    fault.went_on()
    training.reach(22)
    lost, moment = training["node1"], training["node2"].now
    training.nodes.kill("node1")
    assert training["node2"].wait(2 * NOTICED) == 1
    record("the node that all meet at dies", training["node2"].now - moment)
    training.replace("node1")
    training.start("node2")
    training["node1"].wait_for(r"Resuming after epoch \d+")
    training.ends_like(undisturbed)
    assert repeated(lost, training["node1"]) <= SAVE_EVERY
