"""Whether a stage shows what lessons.toml says of its edit, and the stage before does not.

Both are run by the documented launcher under the probe (tools/series/probe.py), on the CPU, in an
empty folder. An observation may ask for a fault in both runs:

    kill      SIGKILL for the last rank, when a checkpoint is on the disk (tools/series/probe.py)
    raise     an exception in the last rank, without restarts by torchrun
    new-disk  a second run, of more epochs, in which node1 (with rank 0) has lost its disk; it
              ends at the first line that shows where training begins
    stop      SIGTERM for torchrun, after the first line that has a loss
"""

import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tools.errors import UserError

from . import launch, probe
from .stages import Stage

ARGS = ("3", "1")  # epochs, epochs between saves
RESTARTS = Path(__file__).resolve().parents[2] / "launch" / "restarts.sh"
MOST = 18  # lines of each output in a comparison: both fit on a terminal
LIMIT = 300  # seconds; a bound on hangs, not a measure of speed
TELLS_A_LOSS = r"\| (train )?loss"
BEGINS = rf"Resuming after|{TELLS_A_LOSS}"


def problem(stage: Stage, args: tuple[str, ...] = ()) -> str | None:
    """What is not as lessons.toml says of the stage's edit, with all outputs; None if all is.

    `args` are those of every run; by default, lessons.toml has them.
    """
    observation, name = stage.edit.observation, stage.edit.name
    after, before = _outputs(stage, stage, args), _outputs(stage.before, stage, args)
    if not observation.holds(after, before):
        return "\n".join([f"{stage.name} does not show {name}:", *after])
    if observation.holds(before, before):
        return "\n".join([f"{stage.before.name} shows {name} already:", *before])
    return None


def comparison(stage: Stage, args: tuple[str, ...] = ()) -> str:
    """What the stage before and the stage print, with `>` where a pattern of the edit matches."""
    observed = vars(stage.edit.observation).items()
    patterns = {name: value for name, value in observed if isinstance(value, re.Pattern)}
    said = []
    for one in (stage.before, stage):
        text = "\n".join(_outputs(one, stage, args))
        spans = [found.span() for each in patterns.values() for found in each.finditer(text)]
        marked = {text.count("\n", 0, place) for span in spans for place in span}
        lines = [f"{' >'[n in marked]} {line}" for n, line in enumerate(text.splitlines())]
        kept = sorted(range(len(lines)), key=lambda n: n not in marked)[:MOST]
        more = f" ({len(lines) - MOST} lines left out)" if len(lines) > MOST else ""
        said += [f"--- {one.name}{more}", *(lines[n] for n in sorted(kept))]
    wanted = ", ".join(f"{name} = '{pattern.pattern}'" for name, pattern in patterns.items())
    return "\n".join([*said, f"--- > marks matches, as lessons.toml has {wanted}"])


def _outputs(stage, of, args) -> list[str]:
    """What `stage` prints in the one or two runs that observe the edit of the stage `of`."""
    lesson, observation = stage.lesson, of.edit.observation
    if stage.number == 0 and stage.run != of.run and lesson.observe:
        return [output(stage, lesson.parent.observe or ARGS)]  # it may not have these options
    every = (*(args or lesson.observe or ARGS), *observation.args)
    outputs = [output(stage, every, observation.fault)]
    if observation.again is not None:
        outputs.append(output(stage, (*every, *observation.again)))
    return outputs


@cache
def output(stage: Stage, args: tuple[str, ...], fault: str | None = None) -> str:
    """What a run of the stage prints, stdout and stderr. Raises UserError if it does not end."""
    with (
        launch.script(stage) as path,
        tempfile.TemporaryDirectory(prefix="series-", ignore_cleanup_errors=True) as place,
    ):
        folder = Path(place, "run")
        folder.mkdir()
        env = {"CUDA_VISIBLE_DEVICES": ""}
        if fault in ("kill", "raise"):
            env[probe.FAULT] = f"{fault}:{_save_every(args) if fault == 'kill' else 0}"

        def run(args, **options):
            found = launch.commands(stage, path, list(args), fixed=fault == "new-disk")
            launch.watch(found, Path(place))
            for command in found:
                command.env.update(env)
                if fault == "kill":
                    command.words[:0] = ["sh", "-c", f'. {RESTARTS}; exec "$@"', "sh"]
            return launch.capture(found, folder, limit=LIMIT, **options)[1]

        if fault == "stop":
            return run(args, until=TELLS_A_LOSS)
        if fault != "new-disk":
            return run(args)
        run(args)
        shutil.rmtree(folder / "node1")
        return run(_longer(args), until=BEGINS)


def _longer(args):
    """The arguments of twice as many steps, or of as many epochs more as are between two saves."""
    if "--total_steps" in args:
        at = args.index("--total_steps") + 1
        return [*args[:at], str(2 * int(args[at])), *args[at + 1 :]]
    return [str(int(args[0]) + int(args[1])), *args[1:]]


def _save_every(args):
    """Epochs, or steps, between two saves."""
    total, every = args[:2]
    if "--save_every" in args:
        total, every = (args[args.index(name) + 1] for name in ("--total_steps", "--save_every"))
    if int(total) <= int(every):
        raise UserError(f"to kill a rank after a save takes more than {total} epochs or steps")
    return every
