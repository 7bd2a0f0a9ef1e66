"""Checkpoints: who writes them, how, and what is in them."""

from collections import defaultdict

from ..facts import count, keys, prints
from ..judge import check
from .words import ranks


def _saves(run):
    """Every save with its worker and the attempt that it belongs to."""
    for attempt in run.attempts:
        for worker in attempt.workers:
            for fact in worker.all("saved"):
                yield attempt, worker, fact


def _epochs_done(worker, fact):
    """How many epochs the worker had ended when it wrote."""
    begun = [epoch for epoch in worker.epochs if epoch[0].fact["t"] < fact["t"]]
    return worker.started_after + len(begun)


def _no_saves(run):
    """What to say where nothing was saved: a run that failed earlier says nothing about saving."""
    if run.crash or run.first("hung", "late"):
        return None
    return False, "no checkpoint was written"


def _together(run):
    """The workers that wrote, by attempt, node and number of epochs."""
    groups = defaultdict(dict)
    for attempt, worker, fact in _saves(run):
        key = attempt.number, worker.node, _epochs_done(worker, fact)
        groups[key][worker.process["pid"]] = worker
    return {key: list(workers.values()) for key, workers in groups.items()}


@check("2_multigpu", "save-once")
def saved_once(run):
    """Each checkpoint is written by one process.

    All ranks hold the same weights, so one file is enough; and processes that write the same file
    at the same time destroy it. One rank writes, the others go on.
    """
    groups = _together(run)
    for (_, _, epoch), workers in groups.items():
        if len(workers) > 1:
            return False, f"after epoch {epoch}, {ranks(workers)} each wrote a checkpoint"
    return (True, f"{len(groups)} saves, one writer each") if groups else _no_saves(run)


@check("4_multinode", "save-on-every-node")
def saved_on_every_node(run):
    """On every node, one process writes each checkpoint.

    Nodes share no disk: what is written on one is lost with it. The rank counts through all nodes;
    which number says where a process stands on its own node?
    """
    groups = _together(run)
    if not groups:
        return _no_saves(run)
    for (_, node, epoch), workers in groups.items():
        if len(workers) > 1:
            return False, f"after epoch {epoch}, {ranks(workers)} each wrote on {node}"
    for number, act in enumerate(run.all("act")):
        wrote = {node for attempt, node, _ in groups if attempt == number}
        for node in act["asked"]["nodes"]:
            if wrote and node not in wrote:
                return False, f"of {' and '.join(act['asked']['nodes'])}, {node} wrote nothing"
    return True, f"{len(groups)} saves, one writer on each node"


@check("2_multigpu", "save-once")
def saved_atomically(run):
    """A checkpoint is never half written under its own name.

    A process may die in the middle of a save. Written under another name and renamed when it is
    whole, the old file or the new one is there at every moment; utils.save_checkpoint does that.
    """
    renamed = {fact["source"] for fact in run.all("renamed")}
    saves = list(_saves(run))
    for _, worker, fact in saves:
        if fact["path"] and fact["path"] not in renamed:
            return False, f"{worker.name} wrote {fact['path']} in place"
    return (True, f"{len(saves)} saves, each renamed when whole") if saves else _no_saves(run)


@check("2_multigpu", "construct-the-ddp-model")
def saved_without_ddp(run):
    """A checkpoint can be loaded into the bare model, without DDP.

    DDP is a module around the model, and its state_dict says so in every name. What is saved should
    be what the model calls its own, so that one process can read it as well.
    """
    saves = list(_saves(run))
    for _, worker, fact in saves:
        for key in keys(fact["content"]):
            if key.startswith(("module.", "_orig_mod.")):
                return False, f"in the checkpoint of {worker.name} a weight is called {key!r}"
    return (True, f"{len(saves)} checkpoints") if saves else _no_saves(run)


@check("3_fault_tolerance", "resume")
def saved_complete(run):
    """A checkpoint holds the newest weights, the optimizer's state, and how many epochs have run.

    To go on as if nothing had happened takes all three. The number is that of the epochs that have
    ended, so that the next to run is the one after it.
    """
    saves = list(_saves(run))
    for _, worker, fact in saves:
        steps = [step.fact for step in worker.steps if step.fact["t"] < fact["t"]]
        epoch = _epochs_done(worker, fact)
        if not steps and not worker.first("loaded", "collective"):
            return False, f"{worker.name} saved before its first step"
        if not steps:
            continue  # what it has been given, to keep it
        found = prints(fact["content"])
        if steps[-1]["parameters"] not in found:
            return False, f"what {worker.name} saved after epoch {epoch} are not its newest weights"
        if steps[-1]["state"] and steps[-1]["state"] not in found:
            return (
                False,
                f"what {worker.name} saved after epoch {epoch} lacks the optimizer's state",
            )
        if count(fact["content"]) != epoch:
            return False, (
                f"{worker.name} saved when {epoch} epochs had run, and the checkpoint says "
                f"{count(fact['content'])}"
            )
    return (True, f"{len(saves)} checkpoints") if saves else _no_saves(run)


@check("2_multigpu", "save-once")
def last_epoch_saved(run):
    """What the last epoch has trained is saved.

    The number of epochs need not be a multiple of save_every: the last one counts, whatever its
    number.
    """
    total = run.all("act")[-1]["asked"]["total_epochs"]
    saves = list(_saves(run))
    if not saves or run.crash or run.first("hung", "late"):
        return None if saves else _no_saves(run)
    _, worker, newest = max(saves, key=lambda save: save[2]["t"])
    last = worker.steps[-1].fact if worker.steps else worker.begin
    if last["parameters"] not in prints(newest["content"]):
        saved = count(newest["content"])
        return False, f"{total} epochs were run, and the last checkpoint is of epoch {saved}"
    return True, f"saved after epoch {total}"
