"""A path: a lesson's edits in their order. A check says which stage the script has reached."""

import pytest

from tests.processes import LESSONS
from tests.workshop.scripts import examined, right, told
from tools.series import stages
from workshop.__main__ import main
from workshop.checks import LESSONS as TAUGHT
from workshop.exercises import exercises
from workshop.verdicts import first_failure, passed

STAGES = [stage for name in TAUGHT for stage in stages.of(LESSONS[name])]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_each_stage_is_told_from_the_others(stage):
    path = exercises()[stage.lesson.name]
    assert path.start == stages.of(LESSONS[path.name])[0].source.text
    last = stage.number == len(path.steps)
    text = stage.source.text
    seen, findings = (
        right(stage.lesson.name) if last else examined(stage.lesson.name, text, checks=path.checks)
    )
    assert path.reached(findings) == stage.number, told(seen, findings)
    for one in exercises().values():
        if one.lesson.name == path.name and one.start == text:
            assert first_failure(findings).check.name == one.check
    if last:
        assert passed(findings)
    else:
        assert path.failure(findings).check.name == path.steps[stage.number].check


def test_a_path_is_walked_by_commands(tmp_path, capsys):
    def workshop(*words):
        status = main(["--dir", str(tmp_path), *words])
        return status, capsys.readouterr().out

    status, said = workshop("start", "multigpu")
    assert status == 0 and "7 Ending the process group" in said
    script = tmp_path / "multigpu" / "multigpu.py"
    assert script.read_text() == (LESSONS["multigpu"].parent.source.text)
    chain = stages.of(LESSONS["multigpu"])
    script.write_text(chain[2].source.text)
    status, said = workshop("check")
    assert status == 1
    assert "✓ 2 Constructing the process group" in said
    assert "→ 3 Distributing input data" in said
    assert "has reached multigpu@2. The next edit: Distributing input data." in said
    assert "ranks 0 and 1 saw samples 0, 1, 2" in said and "Before that" not in said
    status, said = workshop("hint")
    assert "hint 2 of 3" in said and "DistributedSampler" in said
    assert workshop("solution")[0] == 1
    status, said = workshop("solution")
    assert "what multigpu@3 has where yours differs" in said
    assert "+    sampler = DistributedSampler(dataset)" in said and "DDP(" not in said
    script.write_text(chain[2].source.text.replace("def main(args):", "def main(args)"))
    status, said = workshop("check")
    assert status == 1 and "Before that, fix this:" in said and "SyntaxError" in said
