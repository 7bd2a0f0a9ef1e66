"""SIGKILL, at random moments, for any rank of the GPT's trainer, and SIGTERM: nothing is lost."""

import os
import random
import signal
import time

import pytest

from tests.faults import same, slow_saves
from tests.mingpt import texts
from tests.mingpt.conftest import TINY, options
from tests.mingpt.test_trainer import repeated
from tests.processes import STANDALONE, Process, run
from tests.soak.test_kills import KILLS, disturb

ROUNDS, STEPS = 12, 200
LENGTH = {"total_steps": STEPS, "eval_every": 50}
ENDURING = ("--standalone", f"--max-restarts={KILLS}")


@pytest.mark.soak
def test_random_kills_change_nothing(tmp_path, note):
    text = tmp_path / "text.txt"
    text.write_text(texts.markov(5007))
    whole = tmp_path / "undisturbed"
    whole.mkdir()
    process = run("mingpt", *options(data=text, **LENGTH), cwd=whole, launcher=STANDALONE)
    assert (process.status, process.err) == (0, "")
    worst = kills = 0
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        env = slow_saves(folder / "slow") if number % 2 else {}  # every other round amid saves
        with Process(
            "mingpt", *options(data=text, **LENGTH), cwd=folder, env=env, launcher=ENDURING
        ) as it:
            kills += disturb([it], random.Random(number))
            assert it.wait() == 0, it.tail
        assert same(whole / "mingpt.pt", folder / "mingpt.pt")
        worst = max(worst, repeated(it.lines, end=STEPS))
    note(f"mingpt, {ROUNDS} runs of {STEPS} steps with {kills} kills: all equal to the undisturbed "
         f"one, at most {worst} steps repeated (save_every {TINY['save_every']})")  # fmt: skip


@pytest.mark.soak
def test_random_sigterms_change_nothing(tmp_path, note):
    text = tmp_path / "text.txt"
    text.write_text(texts.markov(5007))
    whole, folder = tmp_path / "undisturbed", tmp_path / "stopped"
    whole.mkdir()
    folder.mkdir()
    assert run("mingpt", *options(data=text, **LENGTH), cwd=whole, launcher=STANDALONE).status == 0
    random.seed(1)
    stops = 0
    while True:
        once = ("--standalone", "--max-restarts=0")
        with Process("mingpt", *options(data=text, **LENGTH), cwd=folder, launcher=once) as it:
            it.wait_for(r"Step +\d+ \| train|has run \d+ steps already")  # stopped at the last
            time.sleep(random.uniform(0, 0.5))
            if it.process.poll() is None and stops < 8:
                whom = random.choice([it.process.pid, *it.workers()])
                os.kill(whom, signal.SIGTERM)
                stops += 1
            if it.wait() == 0:
                break
    assert same(whole / "mingpt.pt", folder / "mingpt.pt")
    assert list(texts.curve(folder, "train_loss")) == [*range(1, STEPS + 1)]
    assert len([line for line in texts.log(folder) if "train_loss" in line]) == STEPS
    note(f"mingpt, {STEPS} steps with {stops} SIGTERMs: equal to the undisturbed, none repeated")
