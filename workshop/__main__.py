"""python -m workshop: make the lessons' edits yourself; `check` shows what is wrong.

list                show all exercises, and which you have solved
start [EXERCISE]    write the script of the next exercise, or of EXERCISE, into your folder;
                    start multigpu: make all edits of that lesson, stage by stage
check               run your script, and show which checks pass
hint                show a hint; ask again for the next (there are three)
solution            show one right answer: once you have solved it, or when you ask twice
reset               start the exercise again; your script is kept beside the new one
watch               check at every save, until Ctrl-C
ready               before you begin: is this machine ready? (up to two minutes)
report FOLDER...    for the instructor: show how far each learner is
"""

import argparse
import difflib
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from tools.errors import UserError, exit_status
from tools.series import stages

from . import ready, room, scenarios, show
from .acts import observe
from .checks.evidence import ending
from .exercises import Exercise, exercises
from .folder import DEFAULT, Folder
from .show import say, wrapped


def main(arguments: list[str] | None = None) -> int:
    """Returns 0 if all is well, 1 if a check failed, 2 for a mistake in the command."""
    options = _parser().parse_intermixed_args(arguments)
    if options.command is None:
        print(__doc__)
        return 2
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & has it ignored
    for sign in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):  # leave nothing running
        signal.signal(sign, lambda number, _: sys.exit(128 + number))
    sys.stdout.reconfigure(errors="replace")  # a terminal may have no ✓
    folder = Folder(Path(options.dir))
    return exit_status(lambda: COMMANDS[options.command](folder, options), "workshop: ")


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m workshop", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("command", nargs="?", choices=COMMANDS)
    add("what", nargs="*", help="an exercise's name or number; for report, folders")
    told = f"your folder; default: $WORKSHOP_DIR, or {DEFAULT}"
    add("--dir", default=os.environ.get("WORKSHOP_DIR", DEFAULT), help=told)
    return parser


def _chosen(folder: Folder, options) -> Exercise:
    return _named(options.what[0]) if options.what else folder.current()


def _named(name: str) -> Exercise:
    known = exercises()
    if name.isdecimal() and 1 <= int(name) <= len(known):
        return list(known.values())[int(name) - 1]
    found = [one for key, one in known.items() if name in (key, key.partition("/")[2])]
    if len(found) == 1:
        return found[0]
    near = difflib.get_close_matches(name, known, 1, 0.4)
    meant = f"did you mean {near[0]}? " if near else ""
    raise UserError(f"no exercise is called {name!r}: {meant}python -m workshop list shows all")


def _list(folder, options):
    solved, begun = folder.solved, {event["exercise"] for event in folder.events()}
    width = max(map(len, exercises()))
    for number, (name, one) in enumerate(exercises().items(), 1):
        mark = "✓" if name in solved else "·" if name in begun else " "
        color = "green" if name in solved else "yellow" if name in begun else ""
        say(f"{mark} {number:2}  {name:{width}}  {one.title}", color)
    say(f"\n{len(solved & exercises().keys())} of {len(exercises())} solved (✓), in {folder.path}")


def _start(folder, options):
    exercise = _named(options.what[0]) if options.what else folder.next()
    if exercise is None:
        say("All exercises are solved.", "green")
        return
    script, fresh = folder.start(exercise)
    check = next(one for one in exercise.checks if one.name == exercise.check)
    say(f"{exercise.name} – {exercise.title}", "bold")
    fails = "" if exercise.symptom else f" At the start, this one does not hold: {check.sentence}"
    say(wrapped(f"It is solved when every check passes.{fails}"))
    if exercise.steps:
        titles = [f"  {n} {step.title}" for n, step in enumerate(exercise.steps, 1)]
        say("\n".join(["Make these edits one after the other. Check after each:", *titles]))
    say(f"{'Edit' if fresh else 'It is there already, as you left it:'} {script}", "yellow")
    say("then: python -m workshop check      (or once: python -m workshop watch)")


def _check(folder, options) -> int:
    exercise = _chosen(folder, options)
    reached = folder.reached(exercise)
    play = partial(observe, tell=show.running())
    run, findings = scenarios.examine(exercise, folder.files(exercise), play, reached)
    say(f"{exercise.name} – {exercise.title}", "bold")
    crash = ending(run) if run.crash else ""
    reached = reached if crash else exercise.reached(findings, reached)
    first = exercise.failure(findings, reached, crash)
    if exercise.steps:
        show.progress(exercise, reached, first, bool(crash))
    if first:
        hint, name = exercise.hint_for(first), first.check.name
        folder.log(exercise, "check", failed=name, seen=first.evidence, hint=hint, reached=reached)
        if exercise.symptom and name == exercise.check and not folder.of(exercise, "hint"):
            show.symptom(run, exercise.symptom)
        else:
            show.failure(run, first, hint)
        say("\nMore help: python -m workshop hint", "dim")
        return 1
    folder.log(exercise, "check", failed=None, reached=reached)
    show.passed(findings, len(exercise.checks))
    if exercise.name not in folder.solved:
        folder.log(exercise, "solved")
    following = folder.next()
    todo = f"next: python -m workshop start {following.name}" if following else "that was the last"
    say(f"\nRight. {todo}", "green")
    return 0


def _watch(folder, options):
    exercise, before = _chosen(folder, options), None
    options.what = [exercise.name]
    while True:
        try:
            now = [(file, file.stat().st_mtime_ns) for file in folder.files(exercise)]
        except (UserError, OSError):  # while an editor saves, the file may be missing
            now = before
        if now != before:
            before = now
            say(f"\n{time.strftime('%H:%M:%S')}")
            _check(folder, options)
            say("Waiting for the next save. Press Ctrl-C to stop.", "dim")
        time.sleep(0.3)


def _hint(folder, options):
    exercise = _chosen(folder, options)
    folder.script(exercise)
    failed = [e for e in folder.of(exercise, "check") if e.get("failed")]
    name = failed[-1]["failed"] if failed else exercise.check  # what the last check found
    check = next((one for one in exercise.checks if one.name == name), exercise.checks[0])
    about = exercise.fitting(check, folder.reached(exercise))
    seen = f" Seen: {failed[-1]['seen']}." if failed and exercise.symptom else ""
    first = failed[-1]["hint"] if failed else check.hint
    hints = [f"{check.sentence}{seen} {first}", about.second_hint, about.third_hint]
    asked = [e.get("level", 1) for e in folder.of(exercise, "hint") if e.get("of") == about.name]
    said = [1] * bool(failed and not exercise.symptom)  # the check has printed the first hint
    level = min(max(asked + said, default=0) + 1, len(hints))
    folder.log(exercise, "hint", level=level, of=about.name)
    say(f"{exercise.name} – hint {level} of {len(hints)}", "bold")
    if level == 2 and said and not asked:
        say("The check has printed the first hint.", "dim")
    say(wrapped(hints[level - 1].strip()))
    if level == len(hints):
        say("\nThis was the last hint. Still stuck? python -m workshop solution", "dim")


def _solution(folder, options):
    exercise = _chosen(folder, options)
    script = folder.script(exercise)
    earned = exercise.name in folder.solved
    folder.log(exercise, "solution")
    if not earned and len(folder.of(exercise, "solution")) < 2:
        say("You have not solved it yet. Have you read all three hints?")
        say("If you want the solution now, ask for it once more.")
        return 1
    mine = script.read_text(encoding="utf-8", errors="replace").splitlines()
    name, answer = "a right answer", exercise.solution
    if exercise.steps and not earned:  # one edit at a time
        following = min(folder.reached(exercise) + 1, len(exercise.steps))
        stage = stages.Stage(exercise.lesson, following)
        name, answer = stage.name, stage.source.text
    say(f"{exercise.name} – what {name} has where yours differs", "bold")
    diff = difflib.unified_diff(mine, answer.splitlines(), "yours", name, lineterm="")
    for line in list(diff) or ["Nothing: your script is the same."]:
        say(line, {"+": "green", "-": "red"}.get(line[:1], ""))
    return 0


def _reset(folder, options):
    exercise = _chosen(folder, options)
    kept = folder.reset(exercise)
    say(f"{folder.script(exercise)} is as at the start. Your script is now {kept}")


COMMANDS = {
    "list": _list, "start": _start, "check": _check, "hint": _hint, "solution": _solution,
    "reset": _reset, "watch": _watch, "ready": lambda folder, _: ready.ready(folder),
    "report": lambda _, options: room.report([Path(name) for name in options.what]),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
