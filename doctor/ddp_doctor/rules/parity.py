"""Does one process train alike, with batches as large as those of all ranks? Only after `--parity`.

`run` is the one with several processes, `run.reference` the one with one, and `run.perturbed` that
one again, with weights that begin a little off: what this changes is no defect.
"""

import math
from dataclasses import dataclass
from itertools import chain, count

from ..rule import rule
from .parity_causes import SAME, added, apart, cause, gradient, of_ranks
from .replicas import is_sharded

NOISE = 1e-6  # of the norm of all gradients together
LOOSE = 3  # times as far as the perturbed run may move
NEAR = 8  # steps of it before and after one: in any, a token may be routed to another expert


@dataclass
class Step:
    number: int
    ranks: list[dict]  # the facts of all
    own: list[dict]  # those of ranks with different batches
    one: dict
    apart: float  # of all gradients together
    differ: list[tuple[str, float, float | None]]  # a name, how far it is apart, their ratio
    clipping: bool  # they are equal before it


@rule("error")
def parity(run):
    """Several processes do not train as one with the same global batch.

    The gradients of all ranks must be averaged exactly once: do not sum them, and do not divide the
    loss by the number of ranks as well. A mean over one rank's samples or tokens weighs too much if
    that rank has fewer: divide by the mean number per rank. Adam and AdamW hide a wrong scale, and
    so may clipping; SGD does not.
    """
    steps, _ = _compared(run)
    if not steps or not steps[-1].differ or steps[-1].one["batch_norm"]:
        return
    step, place = steps[-1], run.trained[0].first("forward")["where"]
    if output := _first_output(run, step):
        name, *far = output
        told = f"the output of `{name}` is the first that differs: {_told(*far)}"
    else:
        name, *far = step.differ[0]
        why, place = ", because of clipping: before it, all are equal", step.one["where"]
        if not step.clipping:
            names = [(other, ratio) for other, _, ratio in step.differ]
            why, place = cause(run, step.ranks, step.one, names)
        told = f"`{name}` is the first whose gradient differs ({len(step.differ)} of "
        told += f"{len(step.one['names'])} do): {_told(*far)}{why}"
    yield f"at step {step.number} {told}", place


def _told(far, ratio):
    return f"{ratio:.2f} times that of one process" if ratio else f"by {far:.1%} of its norm"


def result(run) -> str | None:
    """`parity: the gradients of 64 steps are equal, to 3e-07 of their norm`."""
    steps, _ = _compared(run)
    if not steps or steps[-1].differ:
        return None
    most = max(step.apart for step in steps)
    return f"parity: the gradients of {len(steps):,} steps are equal, to {most:.0e} of their norm"


def unexamined(run) -> list[str]:
    """What could not be compared, and why."""
    steps, why = _compared(run)
    if steps and steps[-1].differ and steps[-1].one["batch_norm"]:
        why = f"BatchNorm sees one rank's batch, so step {steps[-1].number} differs"
    return [f"parity: {why}"] if why else []


def _compared(run):
    """The steps up to the first that differs, or where the samples are others.

    The second result says why it ends.
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
        batches = {str(part): (part, fact) for part, fact in parts}  # equal if layers are split
        seen = [row for part, _ in batches.values() for row in part]
        facts = [fact for _, fact in parts]
        if sorted(seen) != sorted(rows):
            return steps, f"at step {number} the ranks see other samples than one process"
        if len({len(part) for part, _ in parts}) > 1:
            return steps, f"at step {number} the ranks have batches of different sizes"
        if any(fact["names"] != one["names"] for fact in facts):
            return steps, f"at step {number} the processes have gradients of other parameters"
        both = of_ranks(facts, "projections"), gradient(one, "projections")
        far, _ = apart(*([*chain(*sketches.values())] for sketches in both))
        differ = _differing(run, number, facts, one, "unclipped")
        clipping = [] if differ else _differing(run, number, facts, one, "projections")
        own = [fact for _, fact in batches.values()]
        steps.append(Step(number, facts, own, one, far, differ or clipping, bool(clipping)))
        if differ or clipping:
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


def _differing(run, number, facts, one, field):
    """The parameters whose gradients differ, the one nearest to the loss first."""
    several, single, found = of_ranks(facts, field), gradient(one, field), []
    noise = NOISE * math.hypot(*chain(*single.values()))
    for name, sketch in single.items():
        far, ratio = apart(several[name], sketch)
        if far > SAME and math.dist(several[name], sketch) > noise:
            moved = _moved(run, number, lambda fact, of=name: gradient(fact, field).get(of))
            found += [(name, far, ratio)] if far > LOOSE * moved else []
    called = {name: place for place, name in enumerate(one["outputs"])}  # backward: the last first
    return sorted(found, key=lambda one: -called.get(one[0].rpartition(".")[0], -1))


def _first_output(run, step):
    """Of a module whose rows are divided among the ranks, as the samples are."""
    for name, (rows, shape, sketch) in step.one["outputs"].items():
        parts = [fact["outputs"].get(name, (0, None, [])) for fact in step.own]
        if sum(part[0] for part in parts) == rows and all(part[1] == shape for part in parts):
            far, ratio = apart(added(part[2] for part in parts), sketch)
            moved = _moved(run, step.number, lambda fact, of=name: fact["outputs"].get(of, [0])[-1])
            if far > max(SAME, LOOSE * moved):
                return name or "the model", far, ratio
    return None


def _moved(run, number, sketch_of):
    """How far a little change of the weights moves a gradient or an output, in steps near one."""
    if not (run.perturbed and run.perturbed.trained):
        return 0
    both = (one.trained[0].all("projected") for one in (run.perturbed, run.reference))
    pairs = [*zip(*both, strict=False)][max(0, number - NEAR) : number + NEAR]
    found = [[*map(sketch_of, pair)] for pair in pairs]
    return max((apart(*pair)[0] for pair in found if all(pair)), default=0)
