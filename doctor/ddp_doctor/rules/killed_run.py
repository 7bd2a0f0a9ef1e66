"""What a run did after a restart, and what it should have begun with.

`run` is the one in which a rank was killed, and `run.reference` the undisturbed one.
"""

from itertools import accumulate

from .checkpoint_files import saves
from .drawn_samples import epochs_of


def again(run):
    """The ranks that trained after the restart."""
    return run.attempts[-1].trained if run.reference and len(run.attempts) > 1 else []


def last_save(run) -> dict | None:
    """The last checkpoint that the second start has loaded."""
    return max(resumed_from(run), key=lambda fact: fact["step"], default=None)


def begins_its_epoch_again(run) -> int:
    """How many steps of an epoch are made again, if it saves within one and begins at its start.

    0 if it does not, and for the first epoch: then all is made again.
    """
    if not again(run) or not (save := last_save(run)):
        return 0
    epochs, saved = epochs_of(run.reference.trained[0]), save["step"]
    *begins, end = accumulate((epoch["did"]["step"] for epoch in epochs), initial=0)
    begin = max((n for n in begins if n <= saved), default=0)
    made = again(run)[0].number_of_steps
    return saved - begin if begin and end - begin == made and end == total(run.reference) else 0


def skipped(run) -> tuple[int, int, str | None]:
    """The batches that are taken and not trained on after a restart, those that the epoch had used
    when it was saved, and the line of the loop.

    Both are 0 if a step has no fixed number of batches.
    """
    epochs, after = epochs_of(run.reference.trained[0]) if again(run) else [], again(run)[:1]
    now = next((epoch for worker in after for epoch in epochs_of(worker)), None)
    made = {(epoch["taken"], epoch["did"]["step"], epoch["backwards"]) for epoch in epochs}
    if not now or len(made) != 1 or not (save := last_save(run)) or not now["whole"]:
        return 0, 0, None
    taken, steps, backwards = made.pop()
    if now["taken"] != taken or backwards != taken or taken % steps:
        return 0, 0, None
    return taken - now["backwards"], save["step"] % steps * taken // steps, now["where"]


def resumed_from(run, failed=False):
    """The saves of the killed run whose files the second start has loaded. (None: from memory.)

    Also one that rank 0 made after the kill, if the undisturbed run saves at that step, too. With
    `failed`, those that it tried to load.
    """
    read = {fact[name] for fact in loaded(run, failed) for name in ("path", "behind")}
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


def loaded(run, failed):
    """What the second start read before it trained, unless it had itself written that.

    A script may keep its best weights in a file, and read them at the end.
    """
    workers = run.attempts[-1].workers
    written = [fact for w in workers for fact in w.all("saved", "opened", "renamed", "copied")]
    for worker in workers:
        trains = (worker.first("first") or {"t": float("inf")})["t"]
        for fact in worker.all("loaded"):
            own = {f["path"] for f in written if f["path"] and f["t"] < fact["t"]}
            before = fact["t"] < trains and own.isdisjoint((fact["path"], fact["behind"]))
            if before and bool(fact["error"]) == failed:
                yield fact


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
    return bool(again(run)) and final_weights(run) != final_weights(run.reference)


def pairs(run):
    """Per rank and optimizer: before its first step after the restart, and after the saved step.

    Only of optimizers that step before the save and after it, and not of one that is made anew.
    Another one may be the first to step after a restart, so they are known by type and size.
    """
    save = last_save(run)
    for worker in again(run) if save else ():
        lasting = _lasting(run, worker.rank, save)
        for old in lasting:
            twins = [one for one in lasting if _kind(one) == _kind(old)]
            new = [first for first in worker.all("first") if _kind(first) == _kind(old)]
            if len(new) == len(twins):
                yield worker, new[twins.index(old)], old


def due(run, rank, saved):
    """What a rank may begin with: what it had after the saved step, or right before the next one.

    In between, a script may change weights: clip, normalize, move a moving average. Also what a
    rank had that began equal and saves: if the two are not equal any more, that is another defect.
    """
    savers = {worker.rank for worker, _, _ in saves(run)}
    known = [*run.attempts[0].trained, *run.reference.trained]
    begins = [w.first("first")["parameters"] for w in known if w.rank == rank]
    equal = [w for w in known if w.rank in savers and w.first("first")["parameters"] in begins]
    facts = [f for w in known if w.rank == rank or w in equal for f in w.all("step", "before")]
    at = saved["opt"], saved["n"]
    return [fact for fact in facts if (fact["opt"], fact["n"] - (fact["kind"] == "before")) == at]


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
