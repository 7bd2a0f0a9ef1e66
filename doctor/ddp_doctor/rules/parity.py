"""Does one process train alike, with batches as large as those of all ranks? Only after `--parity`.

`run` is the one with several processes, and `run.reference` the one with one.
"""

import math
from itertools import count

from ..rule import rule
from .replicas import is_sharded

SAME = 1e-3  # of a gradient's norm; fp32 sums in another order differ by some 1e-6


@rule("error")
def parity(run):
    """Several processes do not train as one with the same global batch.

    The gradients of all ranks must be averaged exactly once: do not sum them, and do not divide the
    loss by the number of ranks as well. Adam and AdamW hide a wrong scale, but clipping and SGD
    do not.
    """
    steps, _ = _compared(run)
    if steps and steps[-1][0] > SAME and not steps[-1][2]["batch_norm"]:
        apart, ratio, gradient = steps[-1]
        told = f"{ratio:.2f} times that of one process" if ratio else f"{apart:.1%} another one"
        yield f"at step {len(steps)} the gradient is {told}", gradient["where"]


def result(run) -> str | None:
    """`parity: the gradients of 64 steps are equal, to 3e-07 of their norm`."""
    steps, _ = _compared(run)
    if not steps or steps[-1][0] > SAME:
        return None
    most = max(apart for apart, _, _ in steps)
    return f"parity: the gradients of {len(steps):,} steps are equal, to {most:.0e} of their norm"


def unexamined(run) -> list[str]:
    """What could not be compared, and why."""
    steps, why = _compared(run)
    if steps and steps[-1][0] > SAME and steps[-1][2]["batch_norm"]:
        why = f"BatchNorm sees one rank's batch, so step {len(steps)} differs"
    return [f"parity: {why}"] if why else []


def _compared(run):
    """Per step: how far two gradients are apart, their ratio if that is all, and one as a fact.

    Ends at the step where they part, or where the samples are others. The second result says why.
    """
    if not run.reference or not run.all("projected"):
        return [], None
    alone = run.reference.trained
    if len(alone) != 1:
        return [], f"{len(alone)} processes trained where one was asked for, as with --cpu"
    if is_sharded(run) and not run.first("projected")["parts"]:
        return [], "the ranks hold parts of the weights"
    steps = []
    ranks = [_steps(worker) for worker in run.trained]
    for number, (rows, one), *parts in zip(count(1), _steps(alone[0]), *ranks, strict=False):
        seen = [row for part, _ in parts for row in part]
        if sorted(seen) != sorted(rows):
            return steps, f"at step {number} the ranks see other samples than one process"
        if len({len(part) for part, _ in parts}) > 1:
            return steps, f"at step {number} the ranks have batches of different sizes"
        several = parts[0][1]
        found = [part["projections"] for _, part in parts]
        summed = [*map(sum, zip(*found, strict=True))] if several["parts"] else found[0]
        steps.append((*_distance(summed, one), several))
        if steps[-1][0] > SAME:
            break
    return steps, None


def _steps(worker):
    """The samples of each optimizer step, and its gradient."""
    rows = []
    for fact in worker.all("forward", "projected"):
        if fact["kind"] == "projected":
            yield rows, fact
            rows = []
        else:
            rows = rows + fact["rows"]


def _distance(several, one):
    alone, norm = one["projections"], math.sqrt(sum(one["squares"]))
    apart = math.dist(several, alone) / norm if norm else float(any(several))
    ratio = _dot(several, alone) / (_dot(alone, alone) or 1)
    scaled = math.dist(several, [ratio * number for number in alone])
    return apart, ratio if scaled < SAME * norm else None


def _dot(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))
