"""Checkpoints: which rank writes them, how, and what they contain."""

from collections import defaultdict

from ..facts import count, keys, prints
from ..judge import check
from .words import ranks


def _saves(run):
    """Every save, with its attempt and worker."""
    for attempt in run.attempts:
        for worker in attempt.workers:
            for fact in worker.all("saved"):
                yield attempt, worker, fact


def _epochs_done(worker, fact):
    """How many epochs the worker had finished when it wrote."""
    begun = [epoch for epoch in worker.epochs if epoch[0].fact["t"] < fact["t"]]
    return worker.started_after + len(begun)


def _no_saves(run):
    """The verdict if nothing was saved; None if the run failed before it could save."""
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
    """One process writes each checkpoint.

    All ranks have the same weights, so one file is enough. Processes that write the same file at
    the same time damage it. Let one rank write, and let the others continue.
    """
    groups = _together(run)
    for (_, _, epoch), workers in groups.items():
        if len(workers) > 1:
            return False, f"after epoch {epoch}, {ranks(workers)} each wrote a checkpoint"
    return (True, f"{len(groups)} saves, one writer each") if groups else _no_saves(run)


@check("4_multinode", "save-on-every-node")
def saved_on_every_node(run):
    """On every node, one process writes each checkpoint.

    Nodes share no disk, so a lost node takes its files with it. The rank counts over all nodes;
    which number counts the processes of one node?
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
    """Under its own name, a checkpoint is never half written.

    A process may die while it saves. Write to another name, and rename the file when it is whole:
    then the old or the new checkpoint is always there. utils.save_checkpoint does this.
    """
    renamed = {fact["source"] for fact in run.all("renamed")}
    saves = list(_saves(run))
    for _, worker, fact in saves:
        if fact["path"] and fact["path"] not in renamed:
            return False, f"{worker.name} wrote straight to {fact['path']}"
    return (True, f"{len(saves)} saves, each renamed when whole") if saves else _no_saves(run)


@check("2_multigpu", "construct-the-ddp-model")
def saved_without_ddp(run):
    """The bare model can load a checkpoint, without DDP.

    DDP is a module around your model, so its state_dict prefixes every name. Save the state_dict of
    the model inside: then one process without DDP can load it too.
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

    A run needs all three to resume as if nothing had happened. Save the number of finished epochs:
    the resumed run then starts with the next one.
    """
    saves = list(_saves(run))
    for _, worker, fact in saves:
        steps = [step.fact for step in worker.steps if step.fact["t"] < fact["t"]]
        epoch = _epochs_done(worker, fact)
        if not steps and not worker.first("loaded", "collective"):
            return False, f"{worker.name} saved before its first step"
        if not steps:
            continue  # it saves a checkpoint that another rank sent
        found = prints(fact["content"])
        if steps[-1]["parameters"] not in found:
            return False, f"after epoch {epoch}, {worker.name} did not save its newest weights"
        if steps[-1]["state"] and steps[-1]["state"] not in found:
            return (
                False,
                f"after epoch {epoch}, {worker.name} did not save the optimizer's state",
            )
        if count(fact["content"]) != epoch:
            return False, (
                f"{worker.name} saved after {epoch} epochs, but its checkpoint says "
                f"{count(fact['content'])}"
            )
    return (True, f"{len(saves)} checkpoints") if saves else _no_saves(run)


@check("2_multigpu", "save-once")
def last_epoch_saved(run):
    """The script saves after the last epoch.

    The number of epochs may be no multiple of save_every. The last epoch's weights must be saved
    all the same.
    """
    total = run.all("act")[-1]["asked"]["total_epochs"]
    saves = list(_saves(run))
    if not saves or run.crash or run.first("hung", "late"):
        return None if saves else _no_saves(run)
    _, worker, newest = max(saves, key=lambda save: save[2]["t"])
    last = worker.steps[-1].fact if worker.steps else worker.begin
    if last["parameters"] not in prints(newest["content"]):
        saved = count(newest["content"])
        return False, f"{total} epochs ran, but the last checkpoint is of epoch {saved}"
    return True, f"saved after epoch {total}"
