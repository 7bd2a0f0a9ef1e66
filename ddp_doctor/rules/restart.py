"""Does a run that was killed end like one that was not? Only after `--restart`.

`run` is the one in which a rank was killed, and `run.reference` the undisturbed one.
"""

import os
from collections.abc import Iterator

from ..facts import lost
from ..rule import rule
from .files import saves
from .replicas import diverged
from .words import exception


def _again(run):
    """The ranks that trained after the restart."""
    return run.attempts[-1].trained if run.reference and len(run.attempts) > 1 else []


def _saved(run):
    """How many steps the last checkpoint before the kill has."""
    return max((fact["step"] for fact in _resumed_from(run)), default=0)


def _resumed_from(run, failed=False):
    """The saves of the killed run whose files the second start has loaded. (None: from memory.)

    Also one that rank 0 made after the kill, if the undisturbed run saves at that step, too. With
    `failed`, those that it tried to load.
    """
    read = {fact[name] for fact in _loaded(run, failed) for name in ("path", "behind")}
    killed = (run.first("fault") or {"t": float("inf")})["t"]
    undisturbed = {fact["step"] for _, fact, _ in saves(run.reference)} if run.reference else ()
    return [
        fact for _, fact, path in saves(run)
        if read & {path, None, *_copies(run, fact, path)}
        and (fact["t"] < killed or fact["step"] in undisturbed)
    ]  # fmt: skip


def _copies(run, saved, path):
    copied = [fact for fact in run.all("copied") if fact["t"] > saved["t"]]
    return [fact["path"] for fact in copied if fact["source"] in (path, saved["path"])]


def _loaded(run, failed):
    """What the second start read before it trained, unless it had itself written that.

    A script may keep its best weights in a file, and read them at the end.
    """
    found, workers = [], run.attempts[-1].workers
    written = [fact for w in workers for fact in w.all("saved", "opened", "renamed", "copied")]
    for worker in workers:
        trains = (worker.first("first") or {"t": float("inf")})["t"]
        for fact in worker.all("loaded"):
            own = [f["path"] for f in written if f["path"] and f["t"] < fact["t"]]
            if fact["t"] < trains and not {fact["path"], fact["behind"]} & {*own}:
                found.append(fact)
    return [fact for fact in found if bool(fact["error"]) == failed]


def _read_checkpoint(run):
    return bool(_resumed_from(run))


def total(run) -> int:
    """How many steps a run made."""
    return max((worker.number_of_steps for worker in run.trained), default=0)


def final_weights(run) -> list[list[list[str]]]:
    """The fingerprints of each rank's weights after its last step, and at its end.

    A script may load its best ones at the end, even those of an earlier run.
    """
    ended = [worker for worker in run.attempts[-1].trained if worker.first("last")]
    return [[w.all(kind)[-1]["parameters"] for kind in ("step", "last")] for w in ended]


def ends_differently(run) -> bool:
    return bool(_again(run)) and final_weights(run) != final_weights(run.reference)


@rule("error")
def resume_fails(run):
    """After a restart, the command fails, or it cannot read the checkpoint and begins at the start.

    What was trained is lost. An UnpicklingError is from `torch.load`: it reads tensors, numbers and
    texts only, unless `weights_only=False` is passed for a file that you trust.
    """
    raised, status = _failure(run)
    if raised:
        yield f"{run.who(raised)}: {exception(raised)}", raised["where"]
        return
    made = f"exit status {status}" if status else _made_without(run)
    if made and _resumed_from(run, failed=True):
        fact = _loaded(run, failed=True)[0]
        yield f"{run.who(fact)}: {made} after {fact['error']}", fact["where"]
    elif status:
        yield made, None


def _failure(run):
    """What ended the second start: the first exception, and the exit status.

    A launcher may hide them behind status 0: then no rank trains.
    """
    ended = run.all("ended")[-1:]
    if not run.first("fault") or not ended or ended[0]["act"] == 0:
        return None, None
    facts = [fact for worker in run.attempts[-1].workers for fact in worker.facts]
    exits = [fact["status"] for fact in facts if fact["kind"] == "exit" and not _again(run)]
    status = next(filter(None, [ended[0]["status"], *exits]), None)
    raised = [fact for fact in facts if fact["kind"] == "raised" and not lost(fact)]
    if not status and _again(run):
        return None, None
    return min(raised, key=lambda fact: fact["t"], default=None), status


def _made_without(run):
    """What the second start made, if that is all steps or none, and it read no checkpoint."""
    if not run.reference or len(run.attempts) == 1 or _read_checkpoint(run):
        return None
    made = {worker.number_of_steps for worker in _again(run)} or {0}
    every = made == {total(run.reference)} and run.equally_long
    return f"{max(made):,} steps" if every or made == {0} else None


@rule("error")
def resume_count(run):
    """After a restart, the number of steps is wrong.

    Steps are trained twice or left out. Save the number of epochs or steps that have run, which is
    one more than the number of the last one, and let the loop begin there.
    """
    for worker in _again(run)[:1]:
        undisturbed, made = total(run.reference), worker.number_of_steps
        left = undisturbed - _saved(run)
        if _read_checkpoint(run) and made != left and run.equally_long:
            yield (
                f"the checkpoint has {_saved(run):,} of {undisturbed:,} steps, so {left:,} were "
                f"left, but {made:,} were made"
            ), worker.first("first")["where"]


@rule("error")
def resume_weights(run):
    """After a restart, the weights are not those that were saved.

    The training loses what it has learned. Load the checkpoint into the model that is trained, on
    every rank, before the first step.
    """
    for worker, first, saved in _pairs(run):
        due = [fact["parameters"] for fact in _due(run, worker.rank, saved)]
        halves = any(fact["halves"] in first["halves"] for fact in _resumed_from(run))
        if not halves and first["parameters"] not in due:
            yield (
                f"{worker.name} begins with other weights than after step {saved['n']:,}"
            ), first["where"]
            return


@rule("error")
def resume_optimizer(run):
    """After a restart, the optimizer's state is not the one that it had.

    Its moments begin at zero, so the first steps are too large. Save `optimizer.state_dict()`, and
    load it on every rank.
    """
    for worker, first, saved in _pairs(run):
        due = [fact.get("state") for fact in _due(run, worker.rank, saved)]
        if saved["state"] and first["state"] not in due:
            has = "no state" if not first["state"] else "another state"
            yield (
                f"{worker.name}'s {first['type']} begins with {has}; after step {saved['n']:,} it "
                f"had {len(saved['state'])} tensors"
            ), first["where"]
            return


def _pairs(run):
    """Per rank and optimizer: before its first step after the restart, and after the saved step.

    Only of optimizers that step before the save and after it, and not of one that is made anew.
    Another one may be the first to step after a restart, so they are known by type and size.
    """
    save = max(_resumed_from(run), key=lambda fact: fact["step"], default=None)
    for worker in _again(run) if save else ():
        lasting = _lasting(run, worker.rank, save)
        for old in lasting:
            twins = [one for one in lasting if _kind(one) == _kind(old)]
            new = [first for first in worker.all("first") if _kind(first) == _kind(old)]
            if len(new) == len(twins):
                yield worker, new[twins.index(old)], old


def _due(run, rank, saved):
    """What a rank may begin with: what it had after the saved step, or right before the next one.

    In between, a script may change weights: clip, normalize, move a moving average. Also what a
    rank had that began equal and saves: if the two are not equal any more, that is another defect.
    """
    savers = {worker.rank for worker, _, _ in saves(run)}
    known = [*run.attempts[0].trained, *run.reference.trained]
    begins = [w.first("first")["parameters"] for w in known if w.rank == rank]
    equal = [w for w in known if w.rank in savers and w.first("first")["parameters"] in begins]
    facts = [f for w in known if w.rank == rank or w in equal for f in w.all("step", "before")]
    due = saved["opt"], saved["n"]
    return [fact for fact in facts if (fact["opt"], fact["n"] - (fact["kind"] == "before")) == due]


def _lasting(run, rank, save):
    """What was noted of the optimizers of a rank after their last step before the save."""
    known, undisturbed = (
        next((worker for worker in workers if worker.rank == rank), None)
        for workers in (run.attempts[0].trained, run.reference.trained)
    )
    ends = undisturbed and undisturbed.first("last")
    if not known or not ends:
        return []
    made = {opt: n for opt, n in save["made"].items() if ends["made"].get(opt, 0) > n}
    steps = [step for step in known.all("step") if made.get(str(step["opt"])) == step["n"]]
    return sorted(steps, key=lambda step: step["opt"])


def _kind(fact):
    return fact["type"], len(fact["parameters"])


@rule("warning")
def resume_data(run):
    """After a restart, the data begin at the start again.

    Some batches are trained on twice, and others less often. Restore the epoch's number, the
    position in it, and the random state that draws the batches.
    """
    before = {worker.rank: worker for worker in run.attempts[0].trained}
    last = max(_resumed_from(run), key=lambda fact: fact["step"], default=None)
    for worker in _again(run):
        if last and (known := before.get(worker.rank)):
            now, begin, due = _batch(worker), _batch(known), _batch(known, last["t"])
            if now and begin and due and now["inputs"] == begin["inputs"] != due["inputs"]:
                yield f"{worker.name} sees the run's first batch again", now["where"]
                return


def _batch(worker, since=0):
    """The first pass on a batch, not one on zeros from which a model learns the size of a layer."""
    passes = [fact for fact in worker.all("forward") if fact["t"] > since]
    drawn = [fact for fact in passes if fact["loader"] is not None]
    begun = next((fact["t"] for fact in worker.all("backward") if fact["t"] > since), 0)
    trained = [fact for fact in passes if fact["t"] < begun]
    return next(iter(drawn + trained[::-1]), None)


@rule("warning")
def resume_differs(run):
    """A run that was killed ends with other weights than one that was not.

    Something that the training depends on is not restored: often the random state (of dropout, or
    of the shuffling), a scheduler, or a GradScaler.
    """
    if not (ends_differently(run) and _read_checkpoint(run) and run.repeats):
        return
    others = (resume_count, resume_weights, resume_optimizer, resume_data)
    if not any([*one(run)] for one in others) and not [*diverged(run.reference)]:
        yield "two undisturbed runs ended with equal weights, the killed one did not", None


def unexamined(run) -> Iterator[str]:
    """What these rules could not look at, and why."""
    if not run.first("fault"):
        yield "a restart: the rank was not killed"
    elif [*resume_fails(run)]:
        pass
    elif not _again(run):
        yield "a restart: no step was made after it"
    elif not _read_checkpoint(run):
        yield "a restart: the second start read no checkpoint with torch.load"
    elif not run.equally_long:
        yield "the number of steps after a restart: two undisturbed runs differ, too"
    elif ends_differently(run) and not run.repeats:
        yield "the final weights after a restart: two undisturbed runs differ, too"
    wrote = dict.fromkeys(fact["path"] for fact in run.all("elsewhere"))
    if paths := [path for path in wrote if os.path.isfile(path)]:  # others only passed something
        yield (
            f"files outside the folder, which both runs wrote to: {', '.join(paths[:3])}"
            f"{' …' if len(paths) > 3 else ''}"
        )
