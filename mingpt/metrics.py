"""What training tells: lines on the screen, lines of JSON, TensorBoard, a bar on a terminal."""

import errno
import itertools
import json
import os
import sys
import time
from pathlib import Path

import torch.distributed as dist
from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

from mingpt import flops

GOOD = 0.9  # of the time spent computing; below it, the data are too slow


class Metrics:
    """The log of one process; that of rank 0 is the one that is told.

    `model` is the GPT, `device` where it is and `steps_run` where training goes on.
    """

    def __init__(self, args, model, device, steps_run):
        self.rank, self.steps = dist.get_rank(), steps_run
        self.tokens = args.batch_size * args.block_size  # of a step
        self.waited = 0.0
        self.path = Path(args.checkpoint_path.removesuffix(".pt") + ".jsonl")
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"  # after a failure
        if self.rank == 0 and steps_run == 0 and not again:
            self._set_aside(self.path.resolve())
        self.board = _board(args.tensorboard) if args.tensorboard and self.rank == 0 else None
        share = flops.per_token(model) / dist.get_world_size()
        self.utilization = share / flops.peak(device, args.precision)  # at a token a second
        self.bar = tqdm(
            total=args.total_steps, initial=steps_run, unit="step", leave=False, file=sys.stdout,
            disable=self.rank != 0 or not sys.stdout.isatty(),
        )  # fmt: skip
        if not self.bar.disable:
            sys.stdout = DummyTqdmFile(sys.stdout)  # what anybody prints goes above the bar
        self.started = self.mark = time.perf_counter()

    def timed(self, batches):
        """The same batches. While one is waited for is no computing time."""
        batches = iter(batches)
        while True:
            start = time.perf_counter()
            batch = next(batches)
            self.waited += time.perf_counter() - start
            yield batch

    def trained(self, step, loss):
        """A line about training up to this step (from 0), whose mean loss of all ranks is given."""
        if self.rank != 0:
            return
        loss = loss.item()  # waits for the device, so the clock is read after the work
        now = time.perf_counter()
        speed = (step + 1 - self.steps) * self.tokens / (now - self.mark)
        computing = 1 - self.waited / (now - self.started)
        self.steps = step + 1
        self._say(
            f"Step {step + 1:5} | train loss {loss:.4f} | {speed:,.0f} tokens/s | MFU "
            f"{speed * self.utilization:.1%} | computing {computing:.1%} of the time"
        )
        self.bar.update(step + 1 - self.bar.n)
        if step + 1 == self.bar.total:
            self.bar.close()
        self._keep(
            step, train_loss=loss, tokens_per_second=speed, mfu=speed * self.utilization,
            computing=computing,
        )  # fmt: skip
        if computing < GOOD:
            self._say(
                f"Only {computing:.0%} of the time goes into computing, the rest into waiting for "
                "data: put the --cache on a faster disk"
            )
        self.mark = time.perf_counter()

    def validated(self, step, totals):
        """A line about a validation: `totals` is a tensor [summed loss, tokens]."""
        loss, count = totals.tolist()
        self._say(f"Step {step + 1:5} | val loss {loss / count:.4f} over {count:,.0f} tokens")
        self._keep(step, val_loss=loss / count)
        self.steps, self.mark = step + 1, time.perf_counter()  # the speed is that of training

    def _say(self, line):
        sys.stdout.write(line + "\n")  # at once: a thread tells of checkpoints meanwhile
        sys.stdout.flush()

    def _keep(self, step, **values):
        """What fails here is told: it is no reason to lose what was trained."""
        line = json.dumps({"time": time.time(), "step": step + 1, **values}) + "\n"
        try:
            _append(self.path, line.encode())
        except OSError as error:
            self._say(
                f"This is not kept, {self.path} cannot be written ({error.strerror}): "
                "make room, or give permission to write it"
            )
        if self.board:
            try:
                for name, value in values.items():
                    self.board.add_scalar(name, value, step + 1)
                self.board.flush()
            except OSError as error:
                self._say(
                    f"No more for TensorBoard, {self.board.log_dir} cannot be written "
                    f"({error.strerror}): make room, or pass another --tensorboard next time"
                )
                self.board = None  # its thread has ended

    def _set_aside(self, path):
        """Keep the log of an earlier start under a free name."""
        names = (path.with_suffix(f".{number}.jsonl") for number in itertools.count(1))
        kept = next(name for name in names if not name.exists())
        try:
            if path.exists():
                path.rename(kept)
                self._say(f"{path} of an earlier run is kept as {kept}")
        except OSError as error:
            self._say(f"{path} of an earlier run is continued ({error.strerror})")


def _append(path, line):
    """All of the line or, on a full disk, nothing of it. Raises OSError."""
    with open(path, "ab", buffering=0) as file:
        end = file.tell()
        if file.write(line) < len(line):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _board(folder):
    from torch.utils.tensorboard import SummaryWriter  # slow, and a package that few have

    return SummaryWriter(folder)
