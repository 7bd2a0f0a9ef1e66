"""The scripts of the theory page prove what they say, and notice when it is not so."""

import ast
import difflib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import LIMIT, ROOT

THEORY = ROOT / "docs" / "theory"
CHAIN = ("average_by_hand", "average_with_hooks", "average_in_buckets")


def run(script, *args, cwd=ROOT, **env):
    """Run a script to its end, which is when no process of it holds its output any more."""
    inherited = {name: value for name, value in os.environ.items() if name != "NPROC"}
    process = subprocess.Popen(
        [sys.executable, str(script), *map(str, args)],
        cwd=cwd,
        env={**inherited, "PYTHONDONTWRITEBYTECODE": "1", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # the script, and all that it has started
        out, err = process.communicate()
        raise AssertionError(f"{script} did not end in {LIMIT} s\n{out}\n{err}") from None
    return SimpleNamespace(status=process.returncode, lines=out.splitlines(), err=err)


def check_lines(process, *patterns):
    assert (process.status, process.err) == (0, "")
    assert len(process.lines) == len(patterns), process.lines
    for line, pattern in zip(process.lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


STEP = r"Step {}: weights differ by 0 between ranks, by 0 from DDP, by \de[-+]\d\d from one process"
PROOF = (
    r"Drawn from different seeds: 0\.[1-9]\d\d between ranks",
    STEP.format(0).replace(r"\de[-+]\d\d", r"0e\+00"),
    *(STEP.format(step) for step in (1, 2, 3)),
    r"Shares of 16 and 16: mean of means (0\.\d{4}), mean \1",
    r"Shares of 4 and 28: mean of means (0\.\d{4}), mean (?!\1)0\.\d{4}",
)
ARRIVAL = r"Gradients arrive: 5\.bias 5\.weight 4\.bias 4\.weight \.\.\. 0\.weight"


@pytest.mark.parametrize(
    ("script", "collectives"), [(CHAIN[0], None), (CHAIN[1], 12), (CHAIN[2], 3)]
)
def test_our_ddp_has_the_bits_of_ddp(script, collectives):
    traffic = rf"Each step: {collectives} all-reduces, 25,344 bytes in all"
    before = (ARRIVAL, traffic) if collectives else ()
    check_lines(run(f"docs/theory/{script}.py"), *before, *PROOF)


def test_timeline_writes_what_it_measures(tmp_path):
    process = run("docs/theory/timeline.py", "--json", tmp_path / "events")
    number = r" +\d+\.\d"
    counts = {**dict.fromkeys(CHAIN, 16), "average_in_buckets": 4, "DDP": 4}
    check_lines(
        process,
        "Milliseconds on rank 0, medians of 5 iterations:",
        " +forward +backward +all-reduces +after backward +step",
        *(f"{name}{number * 3} in {count}{number * 2}" for name, count in counts.items()),
        r"All four leave the same gradients, to \de[+-]\d\d",
    )
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    for name, count in counts.items():
        for rank in (0, 1):
            here = [e for e in events if (e["variant"], e["rank"]) == (name, rank)]
            kinds = sorted(event["kind"] for event in here)
            assert kinds == ["all_reduce"] * count + ["backward", "forward", "step"]
            step = next(event for event in here if event["kind"] == "step")
            for event in here:
                assert 0 <= step["start"] <= event["start"] <= event["end"]
                assert event["start"] < step["end"]
            ready = next(event["end"] for event in here if event["kind"] == "backward")
            early = [e for e in here if e["kind"] == "all_reduce" and e["start"] < ready]
            # By hand all of them begin after backward; elsewhere most of them before its end.
            assert len(early) == 0 if name == CHAIN[0] else len(early) >= count - 1
    assert len(events) == 2 * (sum(counts.values()) + 3 * 4)


@pytest.mark.parametrize("ranks", [4, 3])
def test_ring(ranks):
    process = run("docs/theory/ring_all_reduce.py", **({"NPROC": "3"} if ranks == 3 else {}))
    steps = ["at first", *(f"{do} {n}" for do in ("add", "copy") for n in range(1, ranks))]
    whole, size = 2**ranks - 1, 400_000 * ranks  # bytes
    share = 2 * (ranks - 1) * size // ranks
    sent = rf"  each sent {{}} bytes: 2 \* {ranks - 1}/{ranks} of {{:,}} \(all to all: {{:,}}\)"
    floats = rf"{{:,}} floats: {ranks} ranks agree with dist.all_reduce"
    check_lines(
        process,
        *(rf"{step} +(\| [ \d]+){{{ranks}}}" for step in steps),
        f"Every rank holds {whole} everywhere",
        floats.format(size // 4),
        sent.format(f"{share:,} to {share:,}", size, (ranks - 1) * size),
        floats.format(size // 4 + 1),
        sent.format(f"{share + 4:,} to {share + 8:,}", size + 4, (ranks - 1) * (size + 4)),
        floats.format(ranks - 1),
        sent.format(r"\d+ to \d+", 4 * (ranks - 1), (ranks - 1) * 4 * (ranks - 1)),
    )
    assert process.lines[len(steps) - 1].split()[2:] == (["|"] + [str(whole)] * ranks) * ranks


SABOTAGE = [
    ("average_by_hand", "dist.all_reduce(gradient)", "pass", "Step 1: weights differ by 0.0"),
    ("average_by_hand", "dist.broadcast(tensor, src=0)", "pass", "Step 0: weights differ by 0."),
    ("average_in_buckets", "in self.under_way:\n", "in self.under_way[1:]:\n", "Step 1: weights"),
    ("ring_all_reduce", "left, right = ", "right, left = ", "400,000 floats: 0 ranks agree"),
]


def test_sabotaged_scripts_fail(tmp_path):
    def sabotaged(script, right, wrong, _):
        text = source(script)
        assert text.count(right) == 1
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / f"{script}.py").write_text(text.replace(right, wrong))
        return run(f"{script}.py", cwd=folder)

    with ThreadPoolExecutor(2) as pool:  # two at once: one core idles while a script begins
        ends = list(pool.map(sabotaged, *zip(*SABOTAGE, strict=True)))
    for end, (script, _, wrong, finding) in zip(ends, SABOTAGE, strict=True):
        what = f"{script} with {wrong!r}: {end.status}, {end.err}"
        assert end.status == 1, what
        assert re.fullmatch(rf"FAILED: {re.escape(finding)}.*\n", end.err), what


def source(script):
    return (THEORY / f"{script}.py").read_text()


def definitions(script):
    nodes = ast.walk(ast.parse(source(script)))
    return [node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)]


def test_the_chain_is_one_of_small_edits():
    for parent, child in itertools.pairwise(CHAIN):
        # Without the docstrings, which name the script and its idea.
        old, new = (source(name).split('"""', 2)[2] for name in (parent, child))
        marks = [
            line[0]
            for line in difflib.ndiff(old.splitlines(), new.splitlines())
            if line[0] in "+-" and line[2:].strip()
        ]
        assert len(marks) <= 25 and marks.count("-") <= 3
        kept = [name for name in definitions(child) if name in definitions(parent)]
        assert kept == definitions(parent)
    for script in THEORY.glob("*.py"):
        assert max(map(len, script.read_text().splitlines())) <= 80, script.name
