"""Whether a stage shows what lessons.toml says of its edit, and the stage before does not.

Both are run by the documented launcher under the probe (tools/series/probe.py), on the CPU, in an
empty folder. An observation may ask for a fault in both runs:

    kill      SIGKILL for the last rank, in the epoch after the first save
    raise     an exception in the last rank; torchrun is not to restart
    new-disk  a second run, of more epochs, in which node0 (that of rank 0) has lost its checkpoint;
              it ends with its first line that tells where training begins
"""

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from . import launch, probe
from .source import SeriesError
from .stages import Stage

ARGS = ("3", "1")  # epochs, epochs between saves
LIMIT = 300  # seconds; a bound on hangs, not a measure of speed
BEGINS = r"Resuming after|\| loss"


@dataclass(frozen=True)
class Observed:
    """What a stage and the one before print. `processes` is per node; None: as documented."""

    stage: Stage
    args: tuple[str, ...] = ARGS
    processes: int | None = None

    @property
    def after(self) -> str:
        return output(self.stage, self.args, self.processes, self.fault)

    @property
    def before(self) -> str:
        return output(self.stage.before, self.args, self.processes, self.fault)

    @property
    def fault(self):
        return self.stage.edit.observation.fault

    @property
    def is_visible(self) -> bool:
        """Whether there are processes enough for the edit to change anything."""
        return self.processes is None or self.processes >= self.stage.edit.observation.processes

    @property
    def problem(self) -> str | None:
        """What is not as lessons.toml says; None if all is."""
        observation, name = self.stage.edit.observation, self.stage.edit.name
        if not observation.holds(self.after):
            return f"{self.stage.name} does not show {name}:\n{self.after}"
        if self.is_visible and observation.holds(self.before):
            return f"{self.stage.before.name} shows {name} already:\n{self.before}"
        return None


@cache
def output(
    stage: Stage, args: tuple[str, ...], processes: int | None = None, fault: str | None = None
) -> str:
    """What a run of the stage prints, stdout and stderr. Raises SeriesError if it does not end."""
    with (
        launch.script(stage) as path,
        tempfile.TemporaryDirectory(prefix="series-", ignore_cleanup_errors=True) as place,
    ):
        folder = Path(place, "run")
        folder.mkdir()
        env = _probe(Path(place), fault, args) | {"CUDA_VISIBLE_DEVICES": ""}

        def run(args, **options):
            found = launch.commands(stage, path, list(args), processes, fixed=fault == "new-disk")
            for command in found:
                command.env["PYTHONPATH"] = f"{place}:{command.env['PYTHONPATH']}"
                command.env.update(env)
                if fault == "raise":
                    command.words[:] = [w for w in command.words if "--max-restarts" not in w]
            return launch.capture(found, folder, limit=LIMIT, **options)[1]

        if fault != "new-disk":
            return run(args)
        run(args)
        (folder / "node0" / stage.file).with_suffix(".pt").unlink(missing_ok=True)
        more = str(int(args[0]) + int(args[1]))
        return run([more, *args[1:]], until=BEGINS)


def _probe(folder, fault, args):
    """Let torch find the probe in `folder`, and tell it of the fault."""
    entry = folder / "series_probe-0.dist-info" / "entry_points.txt"
    entry.parent.mkdir()
    entry.write_text(f"[torch.backends]\nseries_probe = {probe.__name__}:watch\n")
    if fault not in ("kill", "raise"):
        return {}
    if fault == "kill" and not (len(args) > 1 and int(args[0]) > int(args[1])):
        raise SeriesError(f"to kill a rank after a save needs more epochs than {args}: try 3 1")
    return {probe.FAULT: f"{fault}:{args[1] if fault == 'kill' else 0}"}
