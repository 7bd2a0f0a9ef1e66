"""Does a run that was killed end like one that was not? Only after `--restart`.

Their `run` is described in killed_run.py.
"""

import math
import os
from collections.abc import Iterator

from ..recorded_run import lost, shown
from ..rule import rule
from . import killed_run
from .checkpoint_files import final, optimizer_order, saves
from .replicas import diverged
from .wording import exception, lines_with, times


@rule("error")
def resume_fails(run):
    """After a restart, the command fails, or it cannot read the checkpoint and begins at the start.

    What was trained is lost. An UnpicklingError is from `torch.load`: it refuses objects of your
    own classes. Save plain tensors and numbers, or pass `weights_only=False` for a file that you
    trust.
    """
    raised, status = _failure(run)
    if raised:
        yield f"{run.who(raised)}: {exception(raised)}", raised["where"]
    made = f"exit status {status}" if status else _made_without(run)
    if made and killed_run.resumed_from(run, failed=True):
        fact = next(killed_run.loaded(run, failed=True))
        yield f"{run.who(fact)}: {made} after {fact['error']}", fact["where"]
    elif status:
        yield made, None


def _failure(run):
    """What ended the second start: the first exception, and the exit status.

    A launcher may hide them behind status 0: then no rank trains.
    """
    if not run.first("fault") or (ended := run.all("ended")[-1])["act"] == 0:
        return None, None
    facts = [fact for worker in run.attempts[-1].workers for fact in worker.facts]
    trains = bool(killed_run.again(run))
    exits = [fact["status"] for fact in facts if fact["kind"] == "exit" and not trains]
    status = next(filter(None, [ended["status"], *exits]), None)
    raised = [fact for fact in facts if fact["kind"] == "raised" and not lost(fact)]
    if not status and trains:
        return None, None
    return min(raised, key=lambda fact: fact["t"], default=None), status


def _made_without(run):
    """What the second start made, if that is all steps or none, and it read no checkpoint."""
    if not run.reference or len(run.attempts) == 1 or killed_run.resumed_from(run):
        return None
    made = {worker.number_of_steps for worker in killed_run.again(run)} or {0}
    every = made == {killed_run.total(run.reference)} and run.equally_long
    return f"{max(made):,} steps" if every or made == {0} else None


@rule("error")
def resume_exhausted(run):
    """After a restart, the first epoch has no batch.

    The sampler or loader got back its position at the end of an epoch, so nothing is left of the
    next one. Count the position from 0 in each epoch.
    """
    for worker in killed_run.again(run)[:1]:
        first = worker.first("epoch")
        if killed_run.resumed_from(run) and first and first["whole"] and not first["taken"]:
            places = lines_with(run, r"(sampler|loader)\w*(\.load_state_dict\(|\.\w+ = state)")
            yield "it gave 0 batches", next(iter(places), first["where"])


@rule("error")
def resume_count(run):
    """After a restart, the number of steps is wrong.

    Steps are trained twice or left out. Save how many epochs or steps have run, which is
    `epoch + 1` in a loop from 0, and let the loop begin there.
    """
    save = killed_run.last_save(run)
    for worker in killed_run.again(run)[:1] if save else ():
        undisturbed, saved = killed_run.total(run.reference), save["step"]
        left, made = undisturbed - saved, worker.number_of_steps
        wrong = made != left and not killed_run.begins_its_epoch_again(run)
        if wrong and run.equally_long:
            yield (
                f"the checkpoint has {saved:,} of {undisturbed:,} steps, so {left:,} were left, "
                f"but {made:,} were made"
            ), worker.first("first")["where"]


@rule("error")
def resume_weights(run):
    """After a restart, the weights are not those that were saved.

    The training loses what it has learned. Load the checkpoint into the model that is trained, on
    every rank, before the first step.
    """
    for worker, first, saved in killed_run.pairs(run):
        due = [fact["parameters"] for fact in killed_run.due(run, worker.rank, saved)]
        halves = any(fact["halves"] in first["halves"] for fact in killed_run.resumed_from(run))
        if not halves and first["parameters"] not in due:
            yield (
                f"{worker.name} begins with other weights than after step {saved['n']:,}"
            ), first["where"]


@rule("error")
def resume_optimizer(run):
    """After a restart, the optimizer's state is not the one that it had.

    Its moments begin at zero, so the first steps are wrong. Save `optimizer.state_dict()`, and
    load it on every rank.
    """
    for worker, first, saved in killed_run.pairs(run):
        due = [fact.get("state") for fact in killed_run.due(run, worker.rank, saved)]
        if saved["state"] and first["state"] not in due:
            has = "no state" if not first["state"] else "another state"
            yield (
                f"{worker.name}'s {first['type']} begins with {has}; after step {saved['n']:,} it "
                f"had {len(saved['state'])} tensors"
            ), first["where"]


@rule("warning")
def resume_average(run):
    """After a restart, averaged weights, or a second model, are not what they had been.

    No optimizer has these tensors, but the training changes them: an average begins anew, a teacher
    forgets. Save their state_dict beside the model's, and load it.
    """
    save = killed_run.last_save(run)
    known = [fact for worker in run.attempts[0].trained for fact in worker.all("beside")]
    if not save or any(resume_weights(run)):
        return
    steps = [fact for worker in run.attempts[0].trained for fact in worker.all("first", "step")]
    weights = {print for fact in steps for print in fact["parameters"]}
    for worker in killed_run.again(run):
        for name, now in (worker.first("beside") or {"held": {}})["held"].items():
            there = [(f["step"], one) for f in known for one in f["held"].get(name, ())]
            due = [one for step, one in there if step - save["step"] in (0, 1)]
            changes = len({str(one) for _, one in there}) > 2
            copies = all(2 * len(weights & {*one}) > len(one) for _, one in there)
            if not changes or copies or not due:
                continue
            where = next(killed_run.loaded(run, failed=False))["where"]
            if any(one not in due for one in now):
                step = f"step {save['step']:,}"
                yield f"{worker.name}: {name} is not what it was after {step}", where
            elif step := _changes_otherwise(run, worker, name, there, save["step"]):
                yield (
                    f"{worker.name}: {name} is what it was after step {save['step']:,}, but not "
                    f"after step {step:,}: is its number of updates saved?"
                ), where


def _changes_otherwise(run, worker, name, there, saved):
    """The first step after which something is not what it was, though the weights are."""
    known = {str(fact["parameters"]) for fact in run.reference.all("before")}
    equal = {fact["n"] for fact in worker.all("before") if str(fact["parameters"]) in known}
    for fact in worker.all("beside")[1:]:
        was = [one for step, one in there if step == saved + fact["step"]]
        own = fact["held"].get(name, [])
        if fact["step"] in equal and was and own and all(one not in was for one in own):
            return saved + fact["step"] - 1
    return None


@rule("warning")
def resume_schedule(run):
    """After a restart, the learning rate is not the one that it was.

    Its schedule begins again, or is some steps off. Save `scheduler.state_dict()`, and load it on
    every rank, or compute the rate from the number of steps that have run.
    """
    steps_differ = killed_run.begins_its_epoch_again(run) or any(resume_count(run))
    if steps_differ or any(resume_optimizer(run)):
        return
    for worker, first, saved in killed_run.pairs(run):
        due = _rates(run, worker.rank, saved["opt"])
        made = [first, *(fact for fact in worker.all("before") if fact["opt"] == first["opt"])]
        for fact in made if run.repeats else made[:1]:
            step = saved["n"] + fact.get("n", 1)
            for rate, own in zip(fact["rates"], due.get(step, ()), strict=False):
                if not math.isclose(rate, own, rel_tol=1e-6, abs_tol=1e-12):
                    early, line = next((f["early"] for f in worker.all("scheduled")), (0, None))
                    ahead = f"; its schedule was stepped {times(early)} before" if early else ""
                    yield (
                        f"{worker.name}'s {first['type']} has the rate {rate:.4g} in step "
                        f"{step:,}; undisturbed it was {own:.4g}{ahead}"
                    ), line or first["where"]


def _rates(run, rank, opt):
    """A rank's learning rates, by step: before the kill, and of the undisturbed run if another one
    repeated it."""
    runs = [run.reference.attempts[0]] * bool(run.repeats) + [run.attempts[0]]
    facts = [f for one in runs for w in one.trained if w.rank == rank for f in w.all("before")]
    return {fact["n"]: fact["rates"] for fact in facts if fact["opt"] == opt}


@rule("warning")
def resume_data(run):
    """After a restart, the data do not continue where they were.

    Some batches are trained on twice, and others less often. Restore the epoch's number, the
    position in it in batches, and the random state that draws these.
    """
    skipped, used, loop = killed_run.skipped(run)
    if 0 < skipped != used:
        yield f"of the epoch, {skipped:,} batches are skipped, and {used:,} had been used", loop
    elif repeated := killed_run.begins_its_epoch_again(run):
        begun = killed_run.again(run)[0].first("first")["where"]
        yield f"saved after {repeated:,} steps of an epoch, which begins again", begun
    before = {worker.rank: worker for worker in run.attempts[0].trained}
    last = killed_run.last_save(run)
    for worker in killed_run.again(run):
        if last and (known := before.get(worker.rank)):
            now, begin, due = _batch(worker), _batch(known), _batch(known, _after(known, last))
            until = worker.first("first")["t"]  # a pass may precede, to have gradients
            seen = [fact["inputs"] for fact in worker.all("forward") if fact["t"] < until]
            again = now and begin and due and now["inputs"] == begin["inputs"]
            if again and due["inputs"] not in seen:
                yield f"{worker.name} sees the run's first batch again", now["where"]


def _after(worker, save):
    """When a worker had made the steps that a save has. The rank that saves may be behind it."""
    made = [s["t"] for s in worker.all("step") if s["n"] <= save["made"].get(str(s["opt"]), 0)]
    return max(made, default=save["t"])


def _batch(worker, since=0):
    """The first pass on a batch, not one on zeros from which a model learns the size of a layer."""
    passes = [fact for fact in worker.all("forward") if fact["t"] > since]
    drawn = [fact for fact in passes if fact["loader"] is not None]
    begun = next((fact["t"] for fact in worker.all("backward") if fact["t"] > since), 0)
    trained = [fact for fact in passes if fact["t"] < begun]
    return next(iter(drawn + trained[::-1]), None)


@rule("warning")
def resume_best(run):
    """After a restart, a file is written that an undisturbed run would not have written then.

    Often it has the best weights so far: if the best value is not restored, the first evaluation
    counts as the best, and its weights replace better ones. Save the value, and load it.
    """
    save = killed_run.last_save(run)
    if not save or not run.reference or killed_run.ends_differently(run):
        return
    then = [(path, fact["step"]) for _, fact, path in saves(run.reference)]
    written = [fact for worker in killed_run.again(run) for fact in worker.all("saved")]
    now = [(final(run, one), save["step"] + one["step"], one) for one in written if one["path"]]
    regular = {step for path, step, _ in now if (path, step) in then}
    for path, step, fact in now:
        earlier = any(known == path and when <= save["step"] for known, when in then)
        if earlier and step in regular and (path, step) not in then:
            yield f"{path} is written after step {step:,}, undisturbed it was not", fact["where"]


@rule("warning")
def resume_differs(run):
    """A run that was killed ends with other weights than one that was not.

    Something that the training depends on is not restored: often the random state (of dropout, or
    of the shuffling), or a GradScaler.
    """
    if not (killed_run.ends_differently(run) and killed_run.resumed_from(run) and run.repeats):
        return
    others = (resume_count, resume_weights, resume_optimizer, resume_average, resume_schedule,
              resume_data, optimizer_order)  # fmt: skip
    if not any(any(one(run)) for one in others) and not any(diverged(run.reference)):
        yield "two undisturbed runs ended with equal weights, the killed one did not", None


def unexamined(run) -> Iterator[str]:
    """What these rules could not look at, and why."""
    if not run.first("fault"):
        yield "a restart: the rank was not killed"
    elif any(resume_fails(run)):
        pass
    elif not killed_run.again(run):
        yield "a restart: no step was made after it"
    elif not killed_run.resumed_from(run):
        yield "a restart: the second start read no checkpoint with torch.load"
    elif not run.equally_long:
        yield "the number of steps after a restart: two undisturbed runs differ, too"
    elif killed_run.ends_differently(run) and not run.repeats:
        yield "the final weights after a restart: two undisturbed runs differ, too"
    wrote = dict.fromkeys(fact["path"] for fact in run.all("elsewhere"))
    if paths := [path for path in wrote if os.path.isfile(path)]:  # others only passed something
        yield f"files outside the folder, which both runs wrote to: {shown(paths)}"
