"""The replicas: equal weights, and the mean of all gradients."""

import math

from ..facts import first_difference
from ..judge import check


@check("2_multigpu", "construct-the-ddp-model")
def stay_equal(run):
    """All ranks have the same weights, at the start and after every step.

    Each rank computes gradients from its own samples. If nothing averages them before the optimizer
    steps, each rank trains its own model. DistributedDataParallel broadcasts rank 0's weights, and
    averages the gradients in the backward pass, but only if the forward pass called the DDP module.
    """
    compared = 0
    for attempt in run.attempts:
        first, *others = attempt.trained or [None]
        for other in others:
            mine, theirs = (
                [w.begin["parameters"], *(step.fact["parameters"] for step in w.steps)]
                for w in (first, other)
            )
            at = first_difference(mine, theirs)
            compared += min(len(mine), len(theirs)) - 1
            if at is not None:
                when = f"after {first.place(at - 1)}" if at else "before the first step"
                called = first.steps[max(0, at - 1)].through
                through = "" if "Parallel" in called else f"; the forward pass called {called}"
                again = " after the restart" * bool(attempt.number and not at)
                return False, (
                    f"ranks {first.rank} and {other.rank} have different weights {when}{again}"
                    f"{through}"
                )
    return (True, f"equal after each of {compared} steps") if compared else None


@check("1_theory")
def gradient_is_mean(run):
    """The optimizer uses the mean of all ranks' gradients.

    The ranks' batches together are one large batch, and the mean of the ranks' gradients is its
    gradient. A sum over N ranks is N times too long, a gradient left over from an earlier step does
    not belong to this one, and one that is zeroed before the step moves no weight.
    """
    compared, limit = 0, 0  # clipping shortens to the same length in every step
    for attempt in run.attempts:
        workers = attempt.trained
        steps = zip(*[worker.all("gradient") for worker in workers], strict=False)
        for number, facts in enumerate(steps):
            for worker, fact in zip(workers, facts, strict=True):
                if fact["expected"] is None:
                    return False, (
                        f"the optimizer of {worker.name} does not have the parameters of the model "
                        "that computes the loss: no gradient reaches them, and they do not change"
                    )
            if len({len(fact["used"]) for fact in facts}) > 1:
                return False, "the ranks train models of different sizes"
            total = sum(fact["samples"] for fact in facts)
            weighted = ([n * fact["samples"] for n in fact["expected"]] for fact in facts)
            mean = [sum(column) / total for column in zip(*weighted, strict=True)]
            for worker, fact in zip(workers, facts, strict=True):
                compared += 1
                used, right = _length(fact["used"]), _length(mean)
                if not math.isfinite(used + right):
                    continue  # the training has diverged
                limit = limit or (used if 0 < used < 0.999 * right else 0)
                clipped = limit and abs(used - limit) <= 1e-4 * limit
                most = max(map(abs, fact["used"]))
                each = [min(most, max(-most, number)) for number in mean]  # clip_grad_value_
                scale = used / right if clipped else 1
                if not _same(fact["used"], mean, scale) and not (
                    most and _same(fact["used"], each, 1)
                ):
                    still = "" if used else ": the weights do not change"
                    still = ", in another direction" if abs(used - right) < 1e-3 * right else still
                    return False, (
                        f"in {worker.place(number)}, {worker.name} used a gradient of length "
                        f"{used:.4g}; the mean of all ranks' has {right:.4g}{still}"
                    )
    if not compared and not any(attempt.trained for attempt in run.attempts):
        return None
    return True, f"compared in {compared} steps"


def _same(one, other, scale):
    """Whether `one` is `other`, scaled."""
    apart = _length([a - scale * b for a, b in zip(one, other, strict=True)])
    return apart <= 1e-4 * scale * _length(other)  # false for nan


def _length(vector):
    return math.sqrt(sum(number * number for number in vector))
