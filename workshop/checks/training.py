"""The replicas: equal at the start, equal after each step."""

import math

from ..facts import first_difference
from ..judge import check


@check("2_multigpu", "construct-the-ddp-model")
def same_start(run):
    """All ranks begin with the same weights.

    Averaged gradients keep equal weights equal, but they do not make different weights equal. Which
    rank initializes the weights, with which seed, and how do the other ranks get them?
    """
    for attempt in run.attempts:
        if len(attempt.trained) < 2:
            continue
        begins = [worker.begin["parameters"] for worker in attempt.trained]
        if len(set(begins)) > 1 and None not in begins:
            at = next(i for i, print_ in enumerate(begins) if print_ != begins[0])
            first, other = attempt.trained[0], attempt.trained[at]
            again = " after the restart" if attempt.number else ""
            return False, (
                f"before the first step{again}, rank {first.rank} and rank {other.rank} have "
                f"different weights (fingerprints {begins[0]} and {begins[at]})"
            )
    return (True, "equal fingerprints") if run.attempts[0].trained else None


@check("2_multigpu", "construct-the-ddp-model")
def stay_equal(run):
    """After every step, all ranks have the same weights.

    Each rank computes gradients from its own samples. If nothing averages them before the optimizer
    steps, each rank trains its own model. DistributedDataParallel averages them in the backward
    pass, but only if the forward pass called the DDP module.
    """
    compared = 0
    for attempt in run.attempts:
        workers = attempt.trained
        for other in workers[1:]:
            mine, theirs = ([s.fact["parameters"] for s in w.steps] for w in (workers[0], other))
            at = first_difference(mine, theirs)
            compared += min(len(mine), len(theirs))
            if at is not None:
                step = workers[0].steps[at]
                through = (
                    ""
                    if step.through == "DistributedDataParallel"
                    else (f"; the forward pass called {step.through}")
                )
                return False, (
                    f"ranks {workers[0].rank} and {other.rank} have different weights after "
                    f"{workers[0].place(at)}{through}"
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
                limit = limit or (used if 0 < used < 0.999 * right else 0)
                clipped = limit and abs(used - limit) <= 1e-4 * limit
                if not _same(fact["used"], mean, used / right if clipped else 1):
                    still = "" if used else ": the weights do not change"
                    return False, (
                        f"in {worker.place(number)}, {worker.name} used a gradient of length "
                        f"{used:.4g}; the mean of all ranks' has {right:.4g}{still}"
                    )
    return (True, f"in the first {compared} steps, counting every rank's") if compared else None


def _same(one, other, scale):
    """Whether `one` is `other`, scaled."""
    apart = _length([a - scale * b for a, b in zip(one, other, strict=True)])
    return apart <= 1e-4 * scale * _length(other)  # false for nan


def _length(vector):
    return math.sqrt(sum(number * number for number in vector))


@check("symptoms")
def equal_steps(run):
    """In every epoch, all ranks take the same number of steps.

    A rank with one more batch than the others hangs in its backward pass. Look for code that makes
    the number of batches depend on the data or on the rank.
    """
    for attempt in run.attempts:
        workers = attempt.trained
        for epoch in range(max((len(w.begun) for w in workers), default=0)):
            begun = [w for w in workers if len(w.begun) > epoch]
            most = max(_steps(w, epoch) for w in begun)
            for worker in begun:
                number = _steps(worker, epoch)
                if number < most and _went_on(worker, epoch):
                    return False, (
                        f"in epoch {worker.started_after + epoch + 1}, {worker.name} takes "
                        f"{number} steps, another rank at least {most}"
                    )
    trained = run.attempts[0].trained
    return (True, f"{len(trained[0].epochs[0])} steps per epoch") if trained else None


def _steps(worker, epoch):
    """The steps it has taken, plus the one in whose backward pass it waits."""
    waits = worker.waits is not None and worker.waits["kind"] == "backward"
    return len(worker.begun[epoch]) + (waits and epoch + 1 == len(worker.begun))


def _went_on(worker, epoch):
    if not worker.begun[epoch]:
        return False
    last = worker.begun[epoch][-1].fact["t"]
    return any(fact["t"] > last for fact in worker.all("collective", "loader", "saved"))
