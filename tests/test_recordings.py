"""Recordings: what makes one stale, and what records and checks them."""

import os
import re
import signal
import subprocess
import sys
import uuid

import psutil
import pytest

from tests.processes import ROOT
from tests.sites import Site, run_of, wait_until
from tools.pages import recordings
from tools.pages.keys import Keys
from tools.pages.recordings import Recording
from tools.pages.shell import Ran

pytest.importorskip("sphinx", reason="no sphinx: make docs installs it")

STAGE = "python -m tools.series run --probe multigpu@3 1 1"
BEFORE = "python -m tools.series run multigpu@2 1 1"
SCRIPT = "python multigpu.py 5 1"
OTHER = "python single_gpu.py 50 10"
HELP = "python single_gpu.py --help"
COUNT = "wc multigpu.py"
LOOP = "for stage in multigpu@3; do python -m tools.series run $stage 1 1; done"
COMMANDS = (STAGE, BEFORE, SCRIPT, OTHER, HELP, COUNT, LOOP)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("recordings") / "site")


@pytest.fixture(scope="module")
def keys(site):
    return keys_of(site)


def keys_of(site):
    now = Keys(site.root)
    return {line: now.of([line]) for line in COMMANDS}


@pytest.mark.parametrize(
    "file, old, new, stale",
    [
        ("utils.py", "\nimport", "\n# a comment\nimport", {HELP}),
        ("multigpu.py", "\nimport", "\n# a comment\nimport", {COUNT}),
        ("single_gpu.py", '"""', '"""Changed. ', {HELP}),
        ("utils.py", "\nimport", "\nLIMIT = 3\nimport", {*COMMANDS} - {COUNT}),
        ("guard.py", "\nimport", "\nLIMIT = 3\nimport", {*COMMANDS} - {COUNT}),
        ("multigpu.py", "DistributedSampler(dataset)", "DistributedSampler(dataset, seed=1)",
         {STAGE, SCRIPT, COUNT, LOOP}),
        ("multigpu.py", "\nimport", "\nLIMIT = 3\nimport", {SCRIPT, COUNT}),
        ("tools/series/launch.py", "\nimport", "\nLIMIT = 3\nimport", set()),
    ],
)  # fmt: skip
def test_what_makes_a_recording_stale(site, keys, file, old, new, stale):
    text = site.read(file)
    assert old in text
    site.write(file, text.replace(old, new, 1))
    try:
        now = keys_of(site)
    finally:
        site.write(file, text)
    assert {line for line in COMMANDS if keys[line] != now[line]} == stale


def test_no_recording_has_torchruns_notice():
    for file in (ROOT / "docs" / "recorded").iterdir():
        assert "Setting OMP_NUM_THREADS" not in file.read_text(), file


def test_dependencies_are_followed_through_packages_and_relative_imports(tmp_path):
    files = {
        "start.py": "import one\nfrom pkg.deep import thing\n",
        "one.py": "def late():\n    from two import x\n",
        "two.py": "import one, os, no_such_module\nstarts = '. launch/env.sh'\n",
        "launch/env.sh": "# It needs launch/more.sh\n",
        "launch/more.sh": "",
        "pkg/__init__.py": "from . import tail\n",
        "pkg/deep.py": "from .sibling import x\nfrom .. import nothing\n",
        "pkg/sibling.py": "",
        "pkg/tail.py": "",
        "other.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = Keys(tmp_path).dependencies(["python start.py"])
    assert {str(path.relative_to(tmp_path)) for path in found} == set(files) - {"other.py"}


OUTPUTS = ["", "no end", "two\nlines\n", "'''quoted'''\n", "ends in a quote'", "\\ and \"\n",
           "\x1b[1mbold\x1b[0m\r50 %\x7f\n\\n", " é … 🎉\t\n\n"]  # fmt: skip


def test_what_is_read_is_what_was_printed_and_an_edit_by_hand_is_found(tmp_path):
    ran = tuple(Ran(f"echo '{at}'", text, at, at / 10) for at, text in enumerate(OUTPUTS))
    one = Recording(ran, "key", "2026-11-27", "2.13", "3.11", "a CPU", "it takes long")
    file = tmp_path / "page.toml"
    recordings.write(file, [(one, one.digest)])
    assert recordings.load(file) == {one.lines: (one, one.digest)}
    text = file.read_text()
    edits = {"lines\n": "line\n", "status = 1": "status = 0", "2.13": "2.14", "long": "longer"}
    for old, new in edits.items():
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
        ((edited, digest),) = recordings.load(file).values()
        assert edited.digest != digest


def test_record_and_check(tmp_path):
    """Each sentence of the help: what is stale, one page, --check, --check --some."""
    site = Site(tmp_path / "site")
    page, file = "docs/pages/some.rst", "docs/recorded/some.toml"
    site.write("says.py", "print('one')\n")
    title = "Some\n====\n\nWords.\n"
    far = run_of("echo far", elsewhere="an hour")
    site.write(page, title + run_of("python says.py", expect="one") + run_of("date +%N") + far)
    assert site.record()[0] == 0
    status, output = site.build("text")
    assert status == 0 and "not measured yet: an hour" in site.built("text/pages/some.txt"), output
    assert site.record("--elsewhere")[1].endswith("1 of 1 runs do what their pages say\n")
    first = site.read(file)
    assert site.record() == (0, "0 of 0 runs do what their pages say\n")
    assert site.record("nope") == (2, "no page is called nope: see docs/pages\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y"]

    def commit():
        for words in (["add", "."], ["commit", "-qm", "x"]):
            subprocess.run([*git, *words], cwd=site.root, check=True)

    subprocess.run([*git, "init", "-q"], cwd=site.root, check=True)
    commit()
    for _ in range(2):
        status, output = site.record("--check", "--some", "HEAD")
        assert status == 0 and "recordings hold" in output, output

    # A command that no longer does what the page says; and nothing is written.
    site.write("says.py", "print('two')\n")
    commit()
    status, output = site.record("--check")
    assert status == 1 and "WRONG, some: nothing in the output matches 'one'" in output
    status, output = site.record("--check", "--some", "HEAD")
    assert status == 2 and "some: a recording is out of date: python says.py" in output
    assert site.record("--stale")[0] == 1 and site.read(file) == first

    site.edit(page, ":expect: one", ":expect: two")
    assert site.record()[1].startswith("   ") and site.read(file) != first
    moment = re.compile(r"(?<=date \+%N'\n)(?s:.*)")
    assert moment.search(site.read(file))[0] == moment.search(first)[0]  # it was not run again
    commit()
    status, output = site.record("--check", "--some", "HEAD")
    assert status == 0 and "some: python says.py" in output  # its recording is new

    site.edit(file, "two\n'''", "won\n'''")
    site.edit(file, "far\n'''", "near\n'''")
    status, output = site.build()
    assert output.count("the recording of this command was edited by hand") == 2 and status == 1
    status, output = site.record("--check", "--some", "HEAD")
    assert status == 2 and "a recording was edited by hand: python says.py" in output
    assert site.record()[0] == 0 and "two\n'''" in site.read(file)
    # What runs elsewhere was not recorded again, so its edit still shows.
    status, output = site.record("--check", "--some", "HEAD")
    assert status == 2 and "a recording was edited by hand: echo far" in output
    site.edit(file, "near\n'''", "far\n'''")

    # A page that shows it no more, and another that does: it moves, and nothing runs.
    site.write("docs/pages/other.rst", site.read(page).replace("Some\n====", "Other\n====="))
    site.write(page, title)
    subprocess.run([*git, "add", "."], cwd=site.root, check=True)
    assert site.record("--check", "--some", "HEAD")[0] == 2
    assert site.record() == (0, "0 of 0 runs do what their pages say\n")
    assert not (site.root / file).exists() and "two" in site.read("docs/recorded/other.toml")


def listen():
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_kill_while_recording_leaves_whole_files_and_nothing_else(site, sent, tmp_path):
    token = uuid.uuid4().hex
    page, file = f"docs/pages/kill_{sent}.rst", site.docs / "recorded" / f"kill_{sent}.toml"
    site.write(page, "Kill\n====\n\nIt.\n" + run_of("echo first", "echo whole"))
    assert site.record(f"kill_{sent}")[0] == 0
    sleeps = f"exec -a {token} sleep"
    site.add(page, run_of(f"(setsid bash -c '{sleeps} 3000' &); {sleeps} 3001", timeout=3000))

    def ours():
        found = psutil.process_iter(["cmdline"])
        return [process for process in found if token == (process.info["cmdline"] or [""])[0]]

    words = [sys.executable, "-m", "tools.pages", "record", f"kill_{sent}"]
    env = {**os.environ, "PYTHONPATH": "", "TMPDIR": str(tmp_path)}
    options = {"cwd": site.root, "env": env}
    options["preexec_fn"] = listen  # a shell's `&` makes its children ignore SIGINT
    with subprocess.Popen(words, **options) as process:
        try:
            wait_until(lambda: len(ours()) == 2)
            process.send_signal(sent)
            assert process.wait(60) == (130 if sent == signal.SIGINT else -signal.SIGKILL)
            wait_until(lambda: not ours() and not list(tmp_path.iterdir()))
        finally:
            process.kill()
            for left in ours():
                left.kill()
    ((lines, (one, digest)),) = recordings.load(file).items()
    assert lines == ("echo first", "echo whole") and digest == one.digest
    assert [ran.output for ran in one.ran] == ["first\n", "whole\n"]
    site.write(page, "Kill\n====\n\nIt.\n")
