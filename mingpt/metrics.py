"""The log of training: lines on the screen, lines of JSON, TensorBoard, a progress bar."""

import errno
import itertools
import json
import os
import sys
import time

import torch.distributed as dist
from tqdm import tqdm
from tqdm.contrib import DummyTqdmFile

import utils
from guard import UserError
from mingpt import flops

GOOD = 0.9  # share of the time spent computing; below it, the log warns of slow data


class Metrics:
    """The log. Only rank 0 writes one.

    `model` is the GPT, `loader` the StepLoader, `steps_run` the step to resume after.
    """

    def __init__(self, args, model, loader, steps_run):
        self.rank, self.steps = dist.get_rank(), steps_run
        self.tokens = args.batch_size * args.block_size  # of a step
        self.loader, self.log_every = loader, args.log_every
        self.path = args.log
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"  # after a failure
        if self.rank == 0 and steps_run == 0 and not again:
            self._set_aside()
        self.board = _board(args.tensorboard) if args.tensorboard and self.rank == 0 else None
        peak = flops.peak(loader.device, args.precision)
        # Tokens/s at the theoretical peak of all devices; if that is unknown, None, and no MFU.
        self.limit = peak and peak * dist.get_world_size() / flops.per_token(model)
        self.bar = tqdm(
            total=args.total_steps, initial=steps_run, unit="step", leave=False, file=sys.stdout,
            disable=self.rank != 0 or not (sys.stdout and sys.stdout.isatty()),  # by `>&-`: None
        )  # fmt: skip
        if not self.bar.disable:
            sys.stdout = DummyTqdmFile(sys.stdout)  # prints above the bar
        self.started = self.mark = time.perf_counter()

    def is_due(self, step):
        """Whether the log has a line about this step (counted from 0)."""
        return (step + 1) % self.log_every == 0 or step + 1 == self.bar.total

    def trained(self, step, totals):
        """Log a line about training up to this step.

        `totals` is a tensor [summed loss, sequences] of this step, over all ranks.
        """
        loss, sequences = totals.tolist()  # waits for the device, so the clock is read afterwards
        loss, now = loss / sequences, time.perf_counter()
        speed = (step + 1 - self.steps) * self.tokens / (now - self.mark)
        computing = 1 - self.loader.seconds / (now - self.started)
        self.steps = step + 1
        mfu = {"mfu": speed / self.limit} if self.limit else {}
        utils.show(
            f"Step {step + 1:5} | train loss {loss:.4f} | {speed:,.0f} tokens/s"
            + (f" | MFU {mfu['mfu']:.1%}" if mfu else "")
            + f" | computing {computing:.1%} of the time"
        )
        self.bar.update(step + 1 - self.bar.n)
        if step + 1 == self.bar.total:
            self.bar.close()
        self._keep(step, train_loss=loss, tokens_per_second=speed, **mfu, computing=computing)
        if computing < GOOD:
            utils.show(
                f"Only {computing:.0%} of the time goes into computing, the rest into waiting for "
                "data: put the --cache on a faster disk"
            )
        self.mark = time.perf_counter()

    def validated(self, step, totals):
        """Log a line about a validation: `totals` is a tensor [summed loss, tokens]."""
        loss, count = totals.tolist()
        utils.show(f"Step {step + 1:5} | val loss {loss / count:.4f} over {count:,.0f} tokens")
        self._keep(step, val_loss=loss / count)
        self.steps, self.mark = step + 1, time.perf_counter()  # the speed leaves validation out

    def _keep(self, step, **values):
        """Log the values. If that fails, print why, and let training continue."""
        line = json.dumps({"time": time.time(), "step": step + 1, **values}) + "\n"
        try:
            _append(self.path, line.encode())
            if self.board:
                for name, value in values.items():
                    self.board.add_scalar(name, value, step + 1)
                self.board.flush()
        except OSError as error:
            utils.show(
                f"This line is not kept, the log cannot be written ({error.strerror}): make room, "
                "or give permission to write it"
            )

    def _set_aside(self):
        """Rename the log of an earlier run to a free name."""
        names = (self.path.with_suffix(f".{number}.jsonl") for number in itertools.count(1))
        kept = next(name for name in names if not os.path.lexists(name))
        if self.path.exists():
            try:
                self.path.rename(kept)
            except OSError as error:
                raise UserError(f"cannot rename {self.path} to {kept}: {error.strerror}") from None
            utils.show(f"{self.path} of an earlier run is kept as {kept}")


def _append(path, line):
    """Append the whole line or, on a full disk, nothing. Raises OSError."""
    if path.is_fifo():  # to open it would wait for a reader
        raise OSError(errno.EPIPE, "it is a fifo")
    with open(path, "ab", buffering=0) as file:
        end = file.tell()
        if file.write(line) < len(line):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _board(folder):
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and an optional package

    try:
        return SummaryWriter(folder)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"cannot write --tensorboard {folder}: {why}") from None
