"""Do the replicas stay equal, and do they learn?"""

import math
from collections import defaultdict

from ..recorded_run import matched
from ..rule import rule
from . import partings
from .wording import assigned, lines_with, ranks, where


def is_sharded(run) -> bool:
    """Whether ranks have parts of the weights, or different models: they cannot be compared."""
    first = [fact for worker in run.trained for fact in worker.all("first")]
    sizes = {(fact["opt"], fact["numbers"]) for fact in first}
    differ = len(sizes) > len({opt for opt, _ in sizes})
    own = any(fact["sharded"] for fact in first) or any(f["ignored"] for f in run.all("replicated"))
    zero = any(fact["through"] == "DeepSpeedEngine" for fact in run.all("forward"))
    flat = zero and any(len(fact["parameters"]) < 3 for fact in first)  # a part, as one tensor
    return differ or own or flat or _gathers_shards(run) or holds_parts(run)


def _gathers_shards(run):
    """Whether the optimizer has tensors of no model, other ones on each rank from the beginning,
    and all are gathered: ZeRO by hand."""
    tables = [fact["parameters"] for fact in run.all("named")]
    nameless = any(name is None for table in tables for name, *_ in table)
    size = max((4 * fact["numbers"] for fact in run.all("first")), default=0)
    calls = [f for f in run.all("collective") if f["what"].startswith("all_gather")]
    gathered = any(call["bytes"] > size for call in calls)
    return nameless and gathered and _differ([worker.first("first") for worker in run.trained])


def same_inputs(run) -> int:
    """In how many looked-at forward passes two ranks had the same inputs; 0 if not in all."""
    if len(run.trained) < 2:
        return 0
    pairs = matched(run.trained[:2], "forward", "n").values()
    return len(pairs) if all(one["inputs"] == other["inputs"] for one, other in pairs) else 0


def holds_parts(run) -> bool:
    """Whether each rank has a part of one model, without DDP or DTensor: activations are sent to
    the next, parts of a layer with the same inputs are summed, or all exchange them."""
    begins = [worker.first("first") for worker in run.trained]
    sharded = any(fact["sharded"] for fact in run.all("first"))  # FSDP gathers weights inside
    inside = any(fact["inside"] for fact in run.all("collective")) and same_inputs(run) > 1
    sent = run.first("peer") or (inside and not sharded)
    exchanged = any(f["inside"] and "all_to_all" in f["what"] for f in run.all("collective"))
    return exchanged or (bool(sent) and _differ(begins) and not run.first("replicated"))


@rule("error")
def diverged(run):
    """The ranks have different weights.

    Each rank trains its own model, and only one of them is saved. Wrap the model in DDP before
    the first step, call the DDP object, not the module inside, and never change weights on one
    rank only.
    """
    if len(run.replicas) < 2 or is_sharded(run):
        return
    steps = matched(run.trained, "step", "n", "opt")
    differ = [key for key, facts in steps.items() if _differ(facts)]
    last = {opt: (n, opt) for n, opt in steps if _lasts(run, opt)}
    differ = [
        (n, opt) for n, opt in differ if last.get(opt) in differ and not _ends_equal(run, opt)
    ]
    if not differ:
        return
    step, opt = differ[0]
    equal = [n for n, one in steps if one == opt and n < step]
    apart = _differ(f for w in run.trained for f in w.all("first") if f["opt"] == opt)
    since = "before the first step" if apart else f"after step {step}"
    since += f" (not yet after step {equal[-1]})" if equal and not apart else ""
    if not apart and (found := partings.why(run, opt, step, steps)):
        yield found
    cause = "" if run.first("replicated") else "; no model is in DDP"
    if bypass := run.first("bypass"):
        cause = f"; the forward pass calls {bypass['through']}, not DDP"
    place = bypass or steps[step, opt][0]
    yield f"{ranks(run.trained)} differ {since}{cause}", place["where"]


def _differ(facts):
    return len({str(fact["parameters"]) for fact in facts}) > 1


def _lasts(run, opt):
    """Not if it made few steps as a trial, or has its like before or after it, one for each task.

    Of such ones, only that of the last step.
    """
    worker, times = run.trained[0], defaultdict(list)
    for step in worker.all("step"):
        times[step["opt"]].append(step["t"])
    kinds = {fact["opt"]: (fact["type"], fact["numbers"]) for fact in worker.all("first")}
    own, alike = times[opt], [times[n] for n in times if kinds.get(n) == kinds.get(opt)]
    alone = not any(own[-1] < other[0] or other[-1] < own[0] for other in alike)
    return len(own) > 2 and (alone or (worker.first("last") or {}).get("opt") == opt)


def _ends_equal(run, opt):
    """Whether the ranks end with equal weights, as after averaging them now and then.

    Also if it is not known: only the newest optimizers are looked at there.
    """
    lasts = [worker.all("last")[-1] for worker in run.trained if worker.first("last")]
    return len({str(last["ends"].get(str(opt))) for last in lasts}) == 1


@rule("error")
def names_differ_in_order(run):
    """The ranks have the same parameters in another order.

    DDP matches tensors by their position, so it averages the gradients of one layer with those of
    another. Register layers in a fixed order: a set may have another one in each process.
    """
    tables = [worker.all("replicated") for worker in run.replicas]
    for facts in zip(*tables, strict=False) if len(tables) > 1 else ():
        first = facts[0]["names"]
        for worker, fact in zip(run.replicas, facts, strict=True):
            names = fact["names"]
            if names != first and sorted(names) == sorted(first):
                n = next(n for n, name in enumerate(names) if name != first[n])
                yield (
                    f"number {n + 1} is {first[n]!r} on {run.replicas[0].name}, {names[n]!r} on "
                    f"{worker.name}"
                ), fact["where"]


@rule("note")
def buffers_differ(run):
    """Each rank evaluates with its own statistics of BatchNorm.

    DDP copies rank 0's to the others before a pass that follows a training pass outside of
    no_sync, but not if the module inside is called, nor with `broadcast_buffers=False`. Call the
    DDP object, broadcast the buffers before an evaluation, or use SyncBatchNorm.
    """
    facts = [*matched(run.replicas, "averages", "n").values()]
    if facts and all(len({str(fact["prints"]) for fact in each}) > 1 for each in facts):
        yield f"in all {len(facts)} looked-at passes", facts[0][0]["where"]


@rule("note")
def buffer_of_one_rank(run):
    """Each rank changes a buffer by its own samples.

    DDP averages gradients only. Before a pass it replaces the buffers by rank 0's, or, with
    `broadcast_buffers=False`, leaves them different. So the model is saved with what a part of the
    samples says. All-reduce what the buffer is made of.
    """
    if len(run.replicas) < 2 or is_sharded(run):
        return
    opts = {fact["opt"] for fact in run.all("buffers")}
    for opt in sorted(opts):
        steps = matched(run.replicas, "buffers", "n", "opt")
        steps = [facts for (_, own), facts in steps.items() if own == opt]
        for name in steps[-1][0]["prints"] if steps else ():
            values = [[fact["prints"].get(name) for fact in facts] for facts in steps]
            values = [each for each in values if None not in each]
            changes = len({of_one for of_one, *_ in values}) > 2
            if changes and all(len({*each}) > 1 for each in values):
                own = rf"\.{name.rpartition('.')[2]}\b(\.\w+_\(|(\[.*\])?\s*([-+*/]|@)?=[^=])"
                line = next(iter(lines_with(run, own)), None)
                yield f"`{name}` differs between the ranks after each looked-at step", line


@rule("error")
def ends_apart(run):
    """The ranks end with different weights, though they trained together.

    After the last step each has changed its weights, as one does that loads the best ones. What
    chose them differs between the ranks: all-reduce it, so that all have the same number.
    """
    if len(run.replicas) < 2 or is_sharded(run):
        return
    lasts = [(worker.all("last") or [None])[-1] for worker in run.replicas]
    steps = [worker.all("step") for worker in run.replicas]
    read = [
        {fact["path"] for fact in worker.all("loaded") if fact["t"] > own[-1]["t"]}
        for worker, own in zip(run.replicas, steps, strict=True)
    ]
    if any(paths != read[0] for paths in read):
        return  # they share checkpoints out, to evaluate them
    steps = [*matched(run.replicas, "step", "n", "opt").items()]
    for opt in lasts[0]["moved"] if all(lasts) else ():
        together = [not _differ(facts) for (_, own), facts in steps if own == opt][-1:] == [True]
        moved = all(opt in last["moved"] for last in lasts)
        if together and moved and not _ends_equal(run, opt):
            loads = lines_with(run, r"\.load_state_dict\(")
            yield (
                "the weights were equal at the last looked-at step, and each rank has written to "
                "them since the last step"
            ), [None, *loads][-1]


@rule("error")
def group_of_one(run):
    """A group that should join the ranks has one rank.

    An all-reduce in it adds up nothing, so each rank trains alone, on its share of the samples.
    Check the shape of the mesh, or the ranks of which the group is made.
    """
    wrapped = [fact for fact in run.all("collective") if fact["what"] == "DDP"]
    models = [*run.all("sharded", "split"), *wrapped]
    calls = [f for f in run.all("collective") if f["what"].startswith(("all_reduce", "reduce"))]
    joined = models or calls
    if joined and all(fact["alone"] for fact in joined) and _part_ways(run):
        fact = joined[0]
        yield f"{fact.get('what', 'fully_shard')} in groups of one rank each", fact["where"]


def _part_ways(run):
    """Whether the weights differ, and that is not because each rank has a part of the model."""
    begins = [worker.first("first") for worker in run.trained]
    parts = _differ(begins) and (holds_parts(run) or run.first("peer"))
    last = [*matched(run.trained, "step", "n", "opt").items()][-1:]
    return not parts and any(_differ(f) and not _ends_equal(run, opt) for (_, opt), f in last)


@rule("error")
def learns_nothing(run):
    """The steps train nothing.

    Look at what the loss depends on: a loss over one class, a detached output, `zero_grad` between
    `backward` and `step`, or an optimizer that has the parameters of another copy of the model.
    """
    for worker in run.trained[:1]:
        for first in worker.all("first"):
            steps = [fact for fact in worker.all("step") if fact["opt"] == first["opt"]]
            if len(steps) < 3:
                continue
            unchanged = len({str(fact["parameters"]) for fact in [first, *steps]}) == 1
            unchanged &= any(fact["reached"] for fact in steps)
            place = where([worker], "backward", "step")
            if all(fact["norm"] is None for fact in steps):
                why = "no parameter has a gradient"
                windows = (worker.first("last") or {}).get("windows", [])
                if all(since for _, _, since, *_ in windows):  # else zero_grad came before the step
                    place = assigned(run, steps[0]["where"])
            elif not any(fact["norm"] for fact in steps):
                why = "every gradient is exactly 0"
            elif unchanged and len(steps) > 4 and any(first["rates"]):
                why = f"no weight changes, at a learning rate of {max(first['rates']):g}"
            else:
                continue
            yield (
                f"in all looked-at steps, 1 to {steps[-1]['n']:,}, {why}"
            ), place


@rule("error")
def nan(run):
    """A gradient is not a number.

    NaN then spreads to the weights. Typical causes: weights that were never initialised, a
    learning rate that is too large, a division by zero, or fp16 without a GradScaler. If only one
    rank's loss is NaN, its batch is the cause: often it has no target, so a mean divides by zero.
    """
    for worker in run.trained:
        for fact in worker.all("step"):
            if fact["norm"] is not None and fact["norm"] != fact["norm"]:
                step = f"step {fact['n']}" if fact["n"] > 1 else "the first step"
                told, line = _loss_of_one_rank(run)
                told = f"the norm of {worker.name}'s gradient is NaN at {step}{told}"
                yield told, line or fact["where"]


def _loss_of_one_rank(run):
    """What to say if the first loss that is NaN is so on some ranks only, and where it is made."""
    tables = [(worker, losses_of(worker)) for worker in run.trained]
    bad = {n: worker for worker, own in tables for n, value in own.items() if value != value}
    first = min(bad, default=None)
    for worker, own in tables:
        if not math.isnan(own.get(first, math.nan)):
            return (
                f"; {bad[first].name}'s loss was NaN in backward pass {first}, {worker.name}'s was "
                f"{own[first]:.4g}"
            ), assigned(run, where(run.trained, "backward"))
    return "", None


def losses_of(worker):
    """By the number of the backward pass."""
    return {
        number: value
        for fact in worker.all("losses")
        for number, value in enumerate(fact["values"], fact["first"])
        if value is not None
    }
