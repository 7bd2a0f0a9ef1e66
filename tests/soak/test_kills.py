"""Kills at random moments: every run ends bit for bit like an undisturbed one."""

import os
import random
import signal
import time

import pytest

from tests import nodes
from tests.faults import kill_worker, most_repeated, same, slow_saves
from tests.mingpt import texts
from tests.mingpt.conftest import options
from tests.mingpt.test_trainer import repeated
from tests.parallel.test_dcp import whole
from tests.processes import STANDALONE, Process, epochs, run

ROUNDS = int(os.environ.get("SOAK_ROUNDS", 10))
EPOCHS, SAVE_EVERY = 60, 7
STEPS = 200  # of the GPT
OF_THE_GPT = ("mingpt", "dcp")
KILLS = 3  # as many as STANDALONE allows restarts

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def of_the_gpt(tmp_path_factory):
    """The words of the GPT's command."""
    text = tmp_path_factory.mktemp("text") / "text.txt"
    text.write_text(texts.markov(5007))
    return options(data=text, total_steps=STEPS, eval_every=50)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, of_the_gpt):
    """The folder with the checkpoints of two runs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run("multinode", EPOCHS, SAVE_EVERY, cwd=folder).status == 0
    for lesson in OF_THE_GPT:
        assert run(lesson, *of_the_gpt, cwd=folder, launcher=STANDALONE).status == 0
    return folder


def disturb(processes, chance):
    """Kill workers until all have ended: a third while they start, the others while they train."""

    def lines():
        return sum(len(process.lines) for process in processes)

    kills, end = 0, time.monotonic() + 240
    while kills < KILLS and time.monotonic() < end:
        if chance.random() < 1 / 3:
            time.sleep(chance.uniform(0.2, 4))
        else:
            enough = lines() + chance.randint(1, 25)
            while lines() < enough and time.monotonic() < end:
                if all(process.process.poll() is not None for process in processes):
                    return kills
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.3))
        kills += kill_worker(chance.choice(processes), chance)
    return kills


@pytest.mark.parametrize("slow", [False, True], ids=["", "slow saves"])
@pytest.mark.parametrize("lesson", ["multigpu_torchrun", "multinode", *OF_THE_GPT])
def test_one_node(lesson, slow, of_the_gpt, undisturbed, tmp_path, note):
    args = of_the_gpt if lesson in OF_THE_GPT else (EPOCHS, SAVE_EVERY)
    reference = undisturbed / ("mingpt.pt" if lesson == "mingpt" else "multinode.pt")
    reference = whole(undisturbed) if lesson == "dcp" else reference
    kills, worst = 0, 0
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        env = slow_saves(tmp_path / "slow") if slow else {}
        with Process(lesson, *args, cwd=folder, env=env, launcher=STANDALONE) as process:
            kills += disturb([process], random.Random(number))
            assert process.wait() == 0, process.tail
        assert same(reference, whole(folder) if lesson == "dcp" else folder / f"{lesson}.pt")
        if lesson in OF_THE_GPT:
            worst = max(worst, repeated(process.lines, end=STEPS))
        else:
            worst = max(worst, most_repeated(process.lines, SAVE_EVERY))
            assert worst <= SAVE_EVERY
    note(
        f"{lesson}, one node{', slow saves' * slow}: {ROUNDS} rounds, {kills} kills, all ends"
        f" equal; at most {worst} epochs or steps run again"
    )
    assert kills > ROUNDS


@pytest.mark.parametrize("loss", ["none", "folder emptied"])
def test_two_nodes(loss, undisturbed, tmp_path, note):
    kills, worst = 0, 0
    for number in range(ROUNDS):
        chance = random.Random(number)
        folders = [tmp_path / f"{number}{name}" for name in "ab"]
        if loss == "folder emptied":
            # A first run stops early. Then one node comes back with a new disk.
            first = nodes.start(folders, EPOCHS // 2, SAVE_EVERY)
            assert nodes.finish(first) == [0, 0]
            (chance.choice(folders) / "multinode.pt").unlink()
        found = nodes.start(folders, EPOCHS, SAVE_EVERY, env=slow_saves(tmp_path / "slow"))
        kills += disturb(found, chance)
        assert nodes.finish(found) == [0, 0], found[0].tail + found[1].tail
        for folder in folders:
            assert same(undisturbed / "multinode.pt", folder / "multinode.pt")
        lines = max((node.lines for node in found), key=lambda lines: len(epochs(lines)))
        if loss == "none":
            worst = max(worst, most_repeated(lines, SAVE_EVERY))
    note(
        f"multinode, two nodes, separate folders, {loss}: {ROUNDS} rounds, {kills} kills, all ends"
        f" equal; at most {worst} epochs run again, saved every {SAVE_EVERY}"
    )
    assert kills > ROUNDS and worst <= SAVE_EVERY


def test_sigterms(of_the_gpt, undisturbed, tmp_path, note):
    random.seed(1)
    stops, ended = 0, None
    while ended != 0:
        once = ("--standalone", "--max-restarts=0")
        with Process("mingpt", *of_the_gpt, cwd=tmp_path, launcher=once) as it:
            it.wait_for(r"Step +\d+ \| train|has run \d+ steps already")  # stopped at the last
            time.sleep(random.uniform(0, 0.5))
            if it.process.poll() is None and stops < 8:
                os.kill(random.choice([it.process.pid, *it.workers()]), signal.SIGTERM)
                stops += 1
            ended = it.wait()
    assert same(undisturbed / "mingpt.pt", tmp_path / "mingpt.pt")
    trained = [line["step"] for line in texts.log(tmp_path) if "train_loss" in line]
    assert trained == [*range(1, STEPS + 1)]
    note(f"mingpt, {STEPS} steps with {stops} SIGTERMs: equal to the undisturbed, none repeated")
