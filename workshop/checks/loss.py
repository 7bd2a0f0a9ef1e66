"""The reported loss: printed once per epoch, over the samples of all ranks."""

import math
import re
from collections import defaultdict

from ..facts import SAMPLES
from ..judge import check
from .words import ranks

LINE = re.compile(r"Epoch +(\d+) \| loss ([\d.]+|nan|inf) over (\d+) samples")


def _reports(attempt):
    """By epoch: worker, loss and number of samples of each printed line."""
    reports = defaultdict(list)
    for worker in attempt.workers:
        for said in worker.all("said"):
            if found := LINE.match(said["text"]):
                reports[int(found[1])].append((worker, float(found[2]), int(found[3])))
    return reports


@check("2_multigpu", "report-the-global-loss")
def reported_once(run):
    """One rank prints the loss of an epoch, once.

    Every process runs every line of the script, including the prints. Let one process print: over
    all nodes, exactly one has rank 0.
    """
    epochs = 0
    for attempt in run.attempts:
        reports = _reports(attempt)
        for epoch, lines in sorted(reports.items()):
            epochs += 1
            if len(lines) > 1:
                who = ranks([worker for worker, _, _ in lines])
                return False, f"the line of epoch {epoch} was printed {len(lines)} times, by {who}"
    if epochs:
        return True, f"{epochs} epochs, {epochs} lines"
    if any(attempt.epochs_begun() > 1 for attempt in run.attempts):
        return False, "no rank printed a line such as `Epoch 1 | loss 1.23456 over 2048 samples`"
    return None


@check("2_multigpu", "report-the-global-loss")
def is_global(run):
    """The printed loss is the mean over the samples of all ranks.

    DDP averages gradients and nothing else, so each rank knows only the loss on its own samples.
    Add up the sums and the counts of all ranks before one rank prints their quotient.
    """
    compared = 0
    for attempt in run.attempts:
        for epoch, ((_, loss, count), *_) in sorted(_reports(attempt).items()):
            sums = {w: _sums(w, epoch - w.started_after - 1) for w in attempt.trained}
            if not sums or not all(sums.values()):
                continue
            total, samples = (sum(column) for column in zip(*sums.values(), strict=True))
            compared += 1
            if not math.isfinite(loss):
                return False, f"the loss of epoch {epoch} is {loss}: the training has diverged"
            if not _near(loss, total / samples, 2e-4):
                alone = [w for w, one in sums.items() if _near(loss, one[0] / one[1], 2e-5)]
                whose = f", the loss of rank {alone[0].rank} alone" if alone else ""
                return False, (
                    f"for epoch {epoch} the script printed {loss:.5f}{whose}; over all ranks the "
                    f"loss is {total / samples:.5f}"
                )
            if count != SAMPLES:
                return False, f"the line of epoch {epoch} says {count:,} samples, not {SAMPLES:,}"
    return (True, f"recomputed {compared} epochs from every rank's losses") if compared else None


def _near(one, other, tolerance):
    return abs(one - other) <= tolerance * max(1, abs(other))


def _sums(worker, epoch):
    """Summed loss and samples; None for an epoch that it has not run, or with unknown samples."""
    steps = dict(enumerate(worker.epochs)).get(epoch, [])
    losses = [pair for step in steps for pair in step.losses]
    if not losses or any(loss is None for loss, _ in losses):
        return None
    return sum(loss * size for loss, size in losses), sum(size for _, size in losses)
