"""Whether a stage shows what lessons.toml says of its edit, and the stage before does not.

Both are run by the documented launcher under the probe (tools/series/probe.py), on the CPU, in an
empty folder. An observation may ask for a fault in both runs:

    kill      SIGKILL for the last rank, when a checkpoint is on the disk (tools/series/probe.py)
    raise     an exception in the last rank, without restarts by torchrun
    new-disk  a second run, of more epochs, in which node1 (with rank 0) has lost its checkpoint; it
              ends at the first line that shows where training begins
    stop      SIGTERM for torchrun, after the first line that has a loss
"""

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.errors import UserError

from . import launch, probe
from .stages import Stage

ARGS = ("3", "1")  # epochs, epochs between saves
LIMIT = 300  # seconds; a bound on hangs, not a measure of speed
TELLS_A_LOSS = r"\| (train )?loss"
BEGINS = rf"Resuming after|{TELLS_A_LOSS}"


@dataclass(frozen=True)
class Observed:
    """What a stage and the one before print. `processes` is per node; None means as documented.

    `args` are those of every run; by default, lessons.toml has them.
    """

    stage: Stage
    args: tuple[str, ...] = ()
    processes: int | None = None

    @property
    def after(self) -> list[str]:
        return self._outputs(self.stage)

    @property
    def before(self) -> list[str]:
        return self._outputs(self.stage.before)

    def _outputs(self, stage):
        """Those of one run, or of two."""
        observation = self.stage.edit.observation
        lesson = stage.lesson
        if stage.number == 0 and stage.run != self.stage.run and lesson.observe:
            known = lesson.parent.observe or ARGS  # the parent may not have these options
            return [output(stage, known, self.processes)]
        first, *others = runs(self.stage, self.args)
        said = [output(stage, first, self.processes, observation.fault)]
        return said + [output(stage, args, self.processes) for args in others]

    @property
    def is_visible(self) -> bool:
        """Whether there are enough processes for the edit to change anything."""
        return self.processes is None or self.processes >= self.stage.edit.observation.processes

    @property
    def problem(self) -> str | None:
        """What is not as lessons.toml says; None if all is."""
        observation, name = self.stage.edit.observation, self.stage.edit.name
        if not observation.holds(self.after, self.before):
            return "\n".join([f"{self.stage.name} does not show {name}:", *self.after])
        if self.is_visible and observation.holds(self.before, self.before):
            return "\n".join([f"{self.stage.before.name} shows {name} already:", *self.before])
        return None


def runs(stage: Stage, args: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The arguments of each run, one or two, that observes the edit of a stage."""
    every = args or stage.lesson.observe or ARGS
    observation = stage.edit.observation
    others = [] if observation.again is None else [observation.again]
    return [(*every, *observation.args, *more) for more in [(), *others]]


@cache
def output(
    stage: Stage, args: tuple[str, ...], processes: int | None = None, fault: str | None = None
) -> str:
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
            found = launch.commands(stage, path, list(args), processes, fixed=fault == "new-disk")
            launch.watch(found, Path(place))
            for command in found:
                command.env.update(env)
                if fault == "raise":
                    command.words[:] = [w for w in command.words if "--max-restarts" not in w]
            return launch.capture(found, folder, limit=LIMIT, **options)[1]

        if fault == "stop":
            return run(args, until=TELLS_A_LOSS)
        if fault != "new-disk":
            return run(args)
        run(args)
        (folder / "node1" / stage.file).with_suffix(".pt").unlink(missing_ok=True)
        more = str(int(args[0]) + int(args[1]))
        return run([more, *args[1:]], until=BEGINS)


def _save_every(args):
    """Epochs, or steps, between two saves."""
    total, every = args[:2]
    if "--save_every" in args:
        total, every = (args[args.index(name) + 1] for name in ("--total_steps", "--save_every"))
    if int(total) <= int(every):
        raise UserError(f"to kill a rank after a save takes more than {total} epochs or steps")
    return every
