"""The replicas: equal weights, and the mean of all gradients."""

import math

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
            pairs = enumerate(zip(mine, theirs, strict=False))
            at = next((number for number, (one, two) in pairs if one != two), None)
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
    compared, lengths = 0, []  # of gradients that are shorter than the mean
    for attempt in run.attempts:
        workers = attempt.trained
        steps = zip(*[worker.all("gradient") for worker in workers], strict=False)
        for number, facts in enumerate(steps):
            if strange := [w for w, f in zip(workers, facts, strict=True) if f["expected"] is None]:
                return False, (
                    f"the optimizer of {strange[0].name} does not have the parameters of the model "
                    "that computes the loss: no gradient reaches them, and they do not change"
                )
            if len({len(fact["used"]) for fact in facts}) > 1:
                return False, "the ranks train models of different sizes"
            sizes = [sum(fact["batches"]) for fact in facts]
            if any(len(set(fact["batches"])) > 1 for fact in facts):
                continue  # accumulated over unequal batches: a mean of means is usual
            total = sum(sizes)
            weighted = ([n * s for n in f["expected"]] for f, s in zip(facts, sizes, strict=True))
            mean = [sum(column) / total for column in zip(*weighted, strict=True)]
            for worker, fact in zip(workers, facts, strict=True):
                compared += 1
                if not _is(fact["used"], mean, lengths):
                    used, right = _length(fact["used"]), _length(mean)
                    told = ", in another direction" if abs(used - right) < 1e-3 * right else ""
                    told = told if used else ": the weights do not change"
                    return False, (
                        f"in {worker.place(number)}, {worker.name} used a gradient of length "
                        f"{used:.4g}; the mean of all ranks' has {right:.4g}{told}"
                    )
    if not compared and not any(attempt.trained for attempt in run.attempts):
        return None
    return True, f"compared in {compared} steps"


def _is(used, mean, lengths):
    """Whether `used` is the mean, perhaps clipped: to a length that is always the same, or number
    by number. `lengths` gets its length if that is shorter."""
    length, right, most = _length(used), _length(mean), max(map(abs, used))
    if not math.isfinite(length + right):
        return True  # the training has diverged
    if 0 < length < 0.999 * right:
        lengths.append(length)
    clipped = [min(most, max(-most, number)) for number in mean]
    always = lengths and abs(length - lengths[0]) <= 1e-4 * length
    shorter = [number * length / right for number in mean] if always and right else mean
    return _near(used, mean) or _near(used, shorter) or (most > 0 and _near(used, clipped))


def _near(one, other):
    return _length(map(float.__sub__, one, other)) <= 1e-4 * _length(other)  # false for nan


def _length(vector):
    return math.sqrt(sum(number * number for number in vector))
