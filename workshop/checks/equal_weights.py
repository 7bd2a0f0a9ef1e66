"""The replicas: equal weights, and the mean of all gradients."""

import math

from ..verdicts import check
from .evidence import ending

# DDP says by this that a parameter got no gradient, and ends_well shows it. Without that parameter
# DDP averages nothing, so the checks below would only say what follows.
UNUSED = "Expected to have finished reduction"


@check("2_multigpu", "construct-the-ddp-model")
def stay_equal(run):
    """All ranks have the same weights, at the start and after every step.

    Each rank computes gradients from its own samples. If nothing averages them before the optimizer
    steps, each rank trains its own model. DistributedDataParallel broadcasts rank 0's weights, and
    averages the gradients over its process group in the backward pass, if the forward pass called
    the DDP module, and not inside no_sync. Without DDP, average each gradient between backward()
    and the step.
    """
    if UNUSED in ending(run):
        return None
    compared = 0
    for attempt in run.attempts:
        first, *others = attempt.trained or [None]
        if first and first.begin.get("sharded"):
            return False, "each rank has a part of the weights, as with fully_shard, and no replica"
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
                inside = ", the model inside DDP" * bool(first.all("bypass"))
                through = f"; the forward pass called {called}{inside}"
                through = "" if "Parallel" in called else through
                nodes = len({worker.node for worker in attempt.workers})
                again = " after the restart" * bool(attempt.number and not at)
                late = f"; {told}" if at and through and (told := _too_late(first)) else ""
                again += f", on {nodes} nodes" * (nodes > 1)
                return False, (
                    f"ranks {first.rank} and {other.rank} have different weights {when}{again}"
                    f"{through}{late}"
                )
    return (True, f"equal after each of {compared} steps") if compared else None


def _too_late(worker):
    """What it communicated only between its first step and the next batch."""
    kinds = [fact for fact in worker.all("batch", "collective", "step") if fact.get("grad", True)]
    at = next(n for n, fact in enumerate(kinds) if fact["kind"] == "step")
    after = kinds[at + 1 : at + 2]
    if after and after[0]["kind"] == "collective" and kinds[at - 1]["kind"] == "batch":
        return f"{after[0]['what']} ({after[0]['where']}) came after the optimizer had stepped"
    return None


@check("1_theory", "construct-the-ddp-model")
def gradient_is_mean(run):
    """The optimizer uses the mean of all ranks' gradients.

    The ranks' batches together are one large batch, and the mean of the ranks' gradients is its
    gradient. A sum over N ranks, or over N parts of a batch, is N times too long, a gradient left
    over from an earlier step does not belong to this one, and one that is zeroed before the step
    moves no weight.
    """
    if UNUSED in ending(run):
        return None
    compared, known = 0, {}
    for attempt in run.attempts:
        workers = attempt.trained
        steps = zip(*[worker.all("gradient") for worker in workers], strict=False)
        for number, facts in enumerate(steps):
            if strange := [w for w, f in zip(workers, facts, strict=True) if f["expected"] is None]:
                return False, (
                    f"the optimizer of {strange[0].name} does not have the parameters of the model "
                    "that computes the loss: no gradient reaches them, and they do not change"
                )
            unequal = len({size for fact in facts for size in fact["batches"]}) > 1
            columns = zip(*[fact["expected"] for fact in facts], strict=True)
            mean = [sum(column) / len(facts) for column in columns]
            for worker, fact in zip(workers, facts, strict=True):
                used, right = math.hypot(*fact["used"]), math.hypot(*mean)
                if unequal and used < 1.5 * right:
                    continue  # no sum; a mean of means is usual
                compared += 1
                if not _is(fact["used"], mean, fact["weights"], known):
                    told = ", in another direction" if abs(used - right) < 1e-3 * right else ""
                    told = told if used else ": the weights do not change"
                    return False, (
                        f"in {worker.place(number)}, {worker.name} used a gradient of length "
                        f"{used:.4g}; the mean of all ranks' has {right:.4g}{told}"
                    )
    if not compared and not any(attempt.trained for attempt in run.attempts):
        return None
    return True, f"compared in {compared} steps"


@check("2_multigpu", "construct-the-ddp-model")
def moved_before_ddp(run):
    """The model is on its device before DDP wraps it.

    DDP's constructor broadcasts the weights. On GPUs it fails if they are still in the CPU's
    memory. Call model.to(self.device) first, and pass the result to DDP.
    """
    wrapped = run.all("wrapped")
    for fact in wrapped:
        if not fact["moved"]:
            return False, f"{run.who(fact)} wraps a model that was not moved ({fact['where']})"
    return True, f"{len(wrapped)} models" if wrapped else "no DDP"


def _is(used, mean, weights, known):
    """Whether `used` is the mean, perhaps clipped, to one length or number by number; perhaps with
    the gradient of an L2 penalty, which is proportional to the weights, or to some of them.

    `known` keeps the length, and the penalty's factor: they are always the same.
    """
    length, right, most = math.hypot(*used), math.hypot(*mean), max(map(abs, used))
    if not math.isfinite(length + right) or near(used, mean):
        return True  # not finite: the training has diverged
    if 0 < length < right:
        known.setdefault("length", length)
    shorter = [number * known.get("length", 0) / (right or 1) for number in mean]
    clipped = [min(most, max(-most, number)) for number in mean]
    rest = [one - other for one, other in zip(used, mean, strict=True)]
    largest, weight = max(zip(rest, weights, strict=True), key=lambda pair: abs(pair[0]))
    factor = known.setdefault("factor", largest / (weight or 1))
    penalised = [
        one + factor * weight if abs(left - factor * weight) < abs(left) else one
        for one, left, weight in zip(mean, rest, weights, strict=True)
    ]
    return length > 0 and any(near(used, one) for one in (shorter, clipped, penalised))


def near(one, other):
    return math.dist(one, other) <= 1e-4 * math.hypot(*other)  # false for nan
