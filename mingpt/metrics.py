"""The log of training: lines on the screen, lines of JSON, TensorBoard."""

import errno
import json
import os
import time

import torch.distributed as dist

import utils
from guard import UserError
from mingpt import flops


class Metrics:
    """The log. Only rank 0 writes one.

    `model` is the GPT, `loader` the StepLoader, `steps_run` the step to resume after.
    """

    def __init__(self, args, model, loader, steps_run):
        self.steps = steps_run
        self.tokens = args.batch_size * args.block_size  # of a step
        self.loader, self.log_every, self.total = loader, args.log_every, args.total_steps
        self.path = args.log
        wanted = args.tensorboard and dist.get_rank() == 0
        self.board = _board(args.tensorboard) if wanted else None
        peak = flops.peak(loader.device, args.precision)
        # Tokens/s at the theoretical peak of all devices; if that is unknown, None, and no MFU.
        self.limit = peak and peak * dist.get_world_size() / flops.per_token(model)
        self.started = self.mark = time.perf_counter()

    def is_due(self, step):
        """Whether the log has a line about this step (counted from 0)."""
        return (step + 1) % self.log_every == 0 or step + 1 == self.total

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
        self._keep(step, train_loss=loss, tokens_per_second=speed, **mfu, computing=computing)
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


def _append(path, line):
    """Append the whole line or, on a full disk, nothing. Raises OSError."""
    with open(path, "ab", buffering=0) as file:
        end = file.tell()
        if file.write(line) < len(line):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _board(folder):
    from torch.utils.tensorboard import SummaryWriter  # slow to import, and an optional package

    try:
        return SummaryWriter(folder)
    except OSError as error:
        raise UserError(f"cannot write --tensorboard {folder}: {error.strerror}") from None
