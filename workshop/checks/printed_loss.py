"""The reported loss: printed once per epoch, over the samples of all ranks."""

import math
import re
from collections import defaultdict

from ddp_doctor.rules.wording import ranks

from ..verdicts import check

LINE = re.compile(r"Epoch +(\d+) \| loss ([\d.]+|nan|inf) over (\d+) samples")


def _lines(attempt):
    """What ranks printed: worker, epoch, loss, samples, and the steps since its previous line."""
    for worker in attempt.workers:
        taken = before = 0
        for fact in worker.all("step", "said"):
            taken += fact["kind"] == "step"
            if fact["kind"] == "said" and (found := LINE.match(fact["text"])):
                epoch, loss, samples = int(found[1]), float(found[2]), int(found[3])
                yield worker, epoch, loss, samples, slice(before, taken)
                before = taken


@check("2_multigpu", "report-the-global-loss")
def reported_once(run):
    """One rank prints the loss of an epoch, once, and where training resumes.

    Every process runs every line of the script, including the prints. Let one process print: over
    all nodes, exactly one has rank 0.
    """
    epochs = 0
    for attempt in run.attempts:
        printed = defaultdict(list)
        for worker, epoch, *_ in _lines(attempt):
            printed[epoch].append(worker)
        epochs += len(printed)
        for epoch, workers in sorted(printed.items()):
            if len(workers) > 1:
                told = f"was printed {len(workers)} times, by {ranks(workers)}"
                return False, f"the line of epoch {epoch} {told}"
        said = {w: [fact["text"] for fact in w.all("said")] for w in attempt.workers}
        resumes = [w for w in said if any(text.startswith("Resuming") for text in said[w])]
        if len(resumes) > 1:
            return False, f"{ranks(resumes)} each said where training resumes"
    if epochs:
        return True, f"{epochs} epochs, {epochs} lines"
    if any(len(worker.epochs) > 1 for worker in run.processes):
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
        for worker, epoch, loss, counted, steps in _lines(attempt):
            samples, mean = _recomputed(attempt.trained, steps)
            if mean is None:
                continue
            compared += 1
            of = f"of epoch {epoch}"
            if not math.isfinite(loss):
                return False, f"the loss {of} is {loss}: the training has diverged"
            if not math.isclose(loss, mean, rel_tol=2e-4, abs_tol=2e-4):
                _, own = _recomputed([worker], steps)
                alone = math.isclose(loss, own, rel_tol=2e-5, abs_tol=2e-5)
                whose = f", the loss of {worker.name} alone" if alone else ""
                return False, (
                    f"the loss {of} was printed as {loss:.5f}{whose}; over all ranks it is "
                    f"{mean:.5f}"
                )
            if counted != samples:
                return False, f"the line {of} says {counted:,} samples, not {samples:,}"
    return (True, f"recomputed {compared} epochs from every rank's losses") if compared else None


def _recomputed(workers, steps):
    """The samples of these steps and their mean loss; None if a rank lacks some of the steps."""
    parts = [pair for worker in workers for step in worker.steps[steps] for pair in step.losses]
    samples = sum(size for _, size in parts)
    whole = all(len(worker.steps) >= steps.stop for worker in workers)
    if not samples or not whole or any(loss is None for loss, _ in parts):
        return samples, None
    return samples, sum(loss * size for loss, size in parts) / samples
