"""Run the commands of the pages and record what they print, or check that it still holds.

    python -m tools.pages record               what is missing, out of date or was edited by hand
    python -m tools.pages record 2_multigpu    all commands of a page, docs/pages/2_multigpu.py
    python -m tools.pages record --all         all commands of all pages
    python -m tools.pages record --elsewhere   what the others leave out: it needs a GPU, or an hour

With `--check` nothing is written: it runs the same commands and compares their status, `:expect:`
and `:mark:` with the page. `--check --some COMMIT` is for CI. It fails unless every recording holds
by its key and its digest. Then it runs the recordings that differ from those of COMMIT's parent,
and a tenth of the others, which the number of commits before COMMIT chooses: ten commits in a row
run all. It stops choosing when the chosen ones took BUDGET seconds when they were recorded.
"""

import functools
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed

from tools.errors import UserError

from . import recordings, runs, shell

AT_ONCE = 3  # commands; each is about two processes, and waits half of the time
PARTS = 10
BUDGET = 600  # seconds, as recorded; a third of that with AT_ONCE


def record(options) -> int:
    """Returns 0, or 1 if a command did not do what its page says. Raises UserError."""
    if options.some and (options.elsewhere or not options.check):
        raise UserError("--some is a part of --check: record --check --some COMMIT")
    if shutil.which("nvidia-smi") and not options.elsewhere:
        why = "this machine has a GPU, and the pages show what happens without one"
        raise UserError(f"{why}: record --elsewhere runs what needs one")
    own = book()
    if unknown := set(options.pages) - {page.stem for page in runs.pages(own.root)}:
        raise UserError(f"no page is called {', '.join(sorted(unknown))}: see docs/pages")
    chosen = [run for run in own.runs.values() if bool(run.elsewhere) == options.elsewhere]
    if options.some:
        chosen = own.some(chosen, options.some)
    elif options.pages:
        chosen = [run for run in chosen if set(run.pages) & set(options.pages)]
    elif not options.all:
        chosen = [run for run in chosen if own.kept.problem_of(run.lines)]
    if not options.check:
        own.tidy()
    try:
        wrong = own.run(chosen, write=not options.check)
    except KeyboardInterrupt:
        print("interrupted: what had ended is recorded, record goes on from there", file=sys.stderr)
        sys.stdout.flush()
        os._exit(130)  # without waiting for the runs, which shell.py ends
    print(f"{len(chosen) - wrong} of {len(chosen)} runs do what their pages say")
    return 1 if wrong else 0


class Book:
    """The runs of all pages, and their recordings."""

    def __init__(self):
        self.root = shell.ROOT
        self.runs = runs.of_all(self.root)
        self.kept = recordings.Recordings(self.root)

    def tidy(self):
        """Move recordings to the first page that shows them, and delete those of no page."""
        for page in {*self.kept.of_pages, *(run.pages[0] for run in self.runs.values())}:
            self._write(page, {})

    def run(self, chosen: list[runs.Run], write: bool) -> int:
        """Run all, a few at a time; returns how many were wrong.

        Each recording is written as soon as its run has ended.
        """
        pool = ThreadPoolExecutor(AT_ONCE)
        futures = [pool.submit(_attempt, run) for run in chosen if not run.is_alone]
        together = (future.result() for future in as_completed(futures))
        alone = map(_attempt, [run for run in chosen if run.is_alone])
        wrong, fresh = 0, {}
        for run, ran, problem in itertools.chain(together, alone):
            seconds = sum(one.seconds for one in ran)
            print(f"{seconds:6.1f} s  {run.pages[0]}: {run.lines[-1]}", flush=True)
            if problem:
                wrong += 1
                print(f"WRONG, {', '.join(run.pages)}: {problem}", flush=True)
            else:
                key = self.kept.keys.of(run.lines)
                one = recordings.of_now(ran, key, run.elsewhere or "")
                fresh[run.lines] = one, one.digest
                if write:
                    self._write(run.pages[0], fresh)
        return wrong

    def _write(self, page, fresh):
        """Write the file of a page: its fresh recordings, and of the rest those that it has."""
        own = [run.lines for run in self.runs.values() if run.pages[0] == page]
        found = [fresh.get(lines) or self.kept.all.get(lines) for lines in own]
        recordings.write(self.kept.file(page), [one for one in found if one])

    def is_not_measured(self, lines: runs.Lines) -> bool:
        """Whether these lines need another machine, and have no recording from one yet."""
        run = self.runs.get(lines)
        return bool(run and run.elsewhere) and lines not in self.kept.all

    def check(self, orphans: bool = False):
        """Raise UserError if a recording does not hold or, with `orphans`, belongs to no page."""
        bad = [
            f"{run.pages[0]}: a recording {problem}: {run.lines[-1]}"
            + " (record --elsewhere, or git checkout docs/recorded)" * bool(run.elsewhere)
            for run in self.runs.values() if not self.is_not_measured(run.lines)
            if (problem := self.kept.problem_of(run.lines))
        ]  # fmt: skip
        bad += [
            f"{page}: the page does not show {lines[-1]}, or is not the first that does"
            for page, found in self.kept.of_pages.items() if orphans for lines in found
            if lines not in self.runs or self.runs[lines].pages[0] != page
        ]  # fmt: skip
        if bad:
            raise UserError("\n".join([*bad, "to record them: python -m tools.pages record"]))

    def some(self, chosen: list[runs.Run], commit: str) -> list[runs.Run]:
        """What CI runs of a commit. Raises UserError if a recording does not hold."""
        self.check(orphans=True)
        part, before = self._part_and_parent(commit)
        first, others = [], []
        for run in chosen:
            if self.kept.get(run.lines).digest not in before:
                first.append(run)
            elif _number("\n".join(run.lines)) % PARTS == part:
                others.append(run)
        found, seconds = [], 0.0
        for run in [*first, *others]:
            seconds += self.kept.get(run.lines).seconds
            if seconds <= BUDGET:
                found.append(run)
        print(f"{len(self.kept.all)} recordings hold; {len(found)} run again")
        if seconds > BUDGET:
            left = len(first) + len(others) - len(found)
            print(f"{left} more do not, since all would take {seconds:.0f} s", flush=True)
        return found

    def _part_and_parent(self, commit):
        """Which tenth is this commit's turn, and the digests of its parent's recordings."""
        number = self._git("rev-list", "--count", commit)
        if self._git("rev-parse", "--is-shallow-repository").strip() != "false":
            number = _number(commit)  # a shallow clone does not know its history
        text = self._git("grep", "-h", "^digest = ", f"{commit}^", "--", "docs/recorded")
        return int(number or 0) % PARTS, set(re.findall(r"[0-9a-f]{16}", text))

    def _git(self, *words):
        ran = subprocess.run(["git", *words], cwd=self.root, capture_output=True, text=True)
        return "" if ran.returncode else ran.stdout


@functools.cache
def book() -> Book:
    """The book of this tree, read once per process."""
    return Book()


def _attempt(run):
    """Run it, and once more if it was wrong: a training may abort at its end."""
    for _ in range(2):
        ran = []
        try:
            ran = shell.run(run.lines, run.limit)
            problem = run.problem(ran)
        except (UserError, ValueError) as error:  # still running, or :timeout: is no number
            problem = str(error)
        if not problem:
            break
    return run, ran, problem


def _number(text):
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)
