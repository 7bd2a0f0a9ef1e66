"""Every start, stage, right and wrong answer gets its verdict: recorded, some live, too."""

import importlib
import operator
import re
from types import SimpleNamespace

import pytest
import torch

from tests.workshop.cases import CASES
from tests.workshop.recorded import live, read, replay
from tools.series import stages
from workshop.by_epoch import Run, Worker
from workshop.checks import OF
from workshop.exercises import exercises
from workshop.verdicts import check, judge

PATHS = [one for one in exercises().values() if one.steps]
LIVE = (  # something of everything that a check runs, ends, or waits for
    "multigpu/outliers",  # ranks that wait for each other
    "multigpu_torchrun@3",  # a restart
    "multinode@2",  # two nodes
    "wrong: a failed rank that lives on",
)


@pytest.mark.parametrize("name", CASES)
def test_recorded_facts_get_their_verdict(name):
    case = CASES[name]
    case.hold(*replay(case, read(case)))


@pytest.mark.parametrize("name", LIVE)
def test_a_live_run_gets_its_verdict(name):
    _, *judged = live(CASES[name])
    CASES[name].hold(*judged)


@pytest.mark.parametrize("name", [one.name for one in PATHS])
def test_a_path_can_be_followed_by_its_hints(name):
    """Each names only what the script or a package has at that stage; the third is the diff."""
    path = exercises()[name]
    for step, stage in zip(path.steps, stages.of(path.lesson)[1:], strict=True):
        for part in ("checkpoint", "device_mesh", "fsdp", "tensor"):
            importlib.import_module(f"torch.distributed.{part}")
        namespace = {name: importlib.import_module(name) for name in ("torch", "utils")}
        namespace |= {"dist": torch.distributed, "mp": torch.multiprocessing}
        for code in re.findall(r"`([\w.]+)`", step.second_hint):
            known = re.search(rf"\b{re.escape(code)}\b", stage.source.text)
            assert known or operator.attrgetter(code)(SimpleNamespace(**namespace)), code
        lines = re.findall(r"(?m)^  ([+-]) (.*)", step.third_hint)
        for sign, text in lines:
            source = (stage if sign == "+" else stage.before).source.text
            assert text.partition("…")[0] in source, text
        assert len(lines) == len([row for row in stage.rows if row.changed and has_code(row)])


def has_code(row):
    text = row.text.strip()
    return bool(text) and not text.startswith("#") and row.scope != "docstring"


def test_a_rank_that_lost_its_peer_was_waiting_when_it_did():
    backward = {"kind": "backward", "t": 1}
    lost = "Connection reset by peer", "got 0 bytes. Connection was likely closed."
    for message, waits in (*((sign, backward) for sign in lost), ("too hot", None)):
        ended = [{"kind": "raised", "t": 2, "message": message}, {"kind": "exit", "t": 3}]
        assert Worker({}, [backward, *ended]).waits == waits


@pytest.mark.parametrize("name", ["multigpu@7", "multigpu_torchrun@3", "multinode@2"])
def test_odd_facts_are_no_error(name):
    """A check says that it cannot tell if a kind of fact is missing, or if the run breaks off."""
    facts = Run(read(CASES[name])[0]).facts
    kinds = {fact["kind"] for fact in facts} - {"act"}
    odd = [[fact for fact in facts if fact["kind"] != kind] for kind in kinds]
    odd += [facts[:length] for length in range(1, len(facts), len(facts) // 40)]
    for some in odd:
        for finding in judge(Run(some), OF[CASES[name].lesson]):
            assert "itself has failed" not in finding.evidence, finding


def test_a_check_that_fails_itself_says_so():
    def broken(run):
        """It holds."""
        return 1 / 0

    (finding,) = judge(Run([]), [check("index")(broken)])
    assert finding.ok is None and "ZeroDivisionError" in finding.evidence
