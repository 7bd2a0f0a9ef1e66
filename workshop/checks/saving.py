"""Checkpoints: which rank writes them, how, and what they contain."""

import os
from collections import defaultdict

from ddp_doctor.rules.wording import ranks

from ..verdicts import check


@check("2_multigpu", "save-once", "multigpu", "multigpu_torchrun")
def saved_once(run):
    """One process writes each checkpoint.

    All ranks have the same weights, so one file is enough. Processes that write the same file at
    the same time damage it. Let one rank write, and let the others continue.
    """
    writers = defaultdict(dict)  # by attempt, node and number of epochs
    for save in run.saves:
        those = writers[save.attempt, save.worker.node, save.epochs]
        if not (those and save.fact["together"]):  # else each wrote a part of it
            those[save.worker.process["pid"]] = save.worker
    for (_, node, epoch), those in writers.items():
        if len(those) > 1:
            where = f"on {node}" if node else "a checkpoint"
            return False, f"after epoch {epoch}, {ranks(list(those.values()))} each wrote {where}"
    if not (writers or run.crash or run.first("hung", "late")):
        return False, "no checkpoint was written"
    return (True, f"saves: {len(writers)}, one writer each") if writers else None


@check("4_multinode", "save-on-every-node", "multinode")
def saved_on_every_node(run):
    """On every node, one process writes each checkpoint.

    Nodes share no disk, so a lost node takes its files with it. The rank counts over all nodes;
    which number counts the processes of one node?
    """
    for attempt in run.attempts:
        nodes = sorted({worker.node for worker in attempt.workers})
        saves = [save for save in run.saves if save.attempt == attempt.number and save.numbers]
        wrote = {save.worker.node for save in saves}  # tokens have no numbers
        for node in nodes:
            if wrote and node not in wrote:
                return False, f"of {' and '.join(nodes)}, {node} wrote no checkpoint"
    return saved_once.judge(run)


@check("2_multigpu", "save-once")
def saved_atomically(run):
    """Under its own name, a checkpoint is never half written, and never missing.

    A process may die while it saves. Write to another name, and rename the file when it is whole:
    then the old or the new checkpoint is always there. utils.save_checkpoint does this.
    """
    renames = run.all("renamed")
    for save in run.saves:
        renamed = save.fact["together"] or save.path in {fact["source"] for fact in renames}
        if not renamed and not os.path.isabs(save.path):  # else in another folder, to be copied
            return False, f"{save.worker.name} wrote straight to {save.path}"
    parts = tuple(f"{save.path}/" for save in run.saves if save.fact["together"])
    final = {fact["path"] for fact in renames if not fact["path"].startswith(parts)}
    for fact in run.all("opened", "removed", "renamed"):
        who, path = run.who(fact), fact.get("source", fact["path"])
        if os.path.isabs(path) and not os.path.isabs(fact["path"]) and fact["path"] in final:
            return False, f"{who} moved {path}, but from another disk that would be a copy"
        if fact["kind"] == "opened" and path in final:
            return False, f"{who} wrote to {path} itself"
        if any(one["path"] == path and one["t"] > fact["t"] for one in renames if path in final):
            return False, f"{who} removed {path} before the next one was there"
    number = len(run.saves)
    return (True, f"{number} saves, each renamed when whole") if number else None


@check("2_multigpu", "save-once")
def survives_a_power_cut(run):
    """After a power cut, the old or the new checkpoint is there, whole.

    The system keeps written data in memory for some seconds, and may write a new name to the disk
    before the data. Call os.fsync on the file before you rename it, as utils.save_checkpoint does.
    """
    verdict = saved_atomically.judge(run)
    if verdict and verdict[0]:
        for fact in run.all("renamed"):
            if not fact["synced"]:
                return False, (
                    f"{run.who(fact)} renamed {fact['source']} while its data could still be in "
                    "memory: it had not called os.fsync"
                )
    return verdict


@check("2_multigpu", "construct-the-ddp-model")
def saved_without_ddp(run):
    """The bare model can load a checkpoint, without DDP.

    DDP is a module around your model, so its state_dict prefixes every name. Save the state_dict of
    the model inside: then one process without DDP can load it too.
    """
    if any(fact["through"] == "DistributedDataParallel" for fact in run.all("replicated")):
        return False, "DDP wraps a model that DDP has wrapped already"
    for save in run.saves:
        names, weights = save.fact["names"], save.step["parameters"] if save.step else []
        for key in [leaf["key"] for leaf in save.fact["content"] if leaf["print"] in weights]:
            near = [name for name in names if key and (key.endswith(name) or name.endswith(key))]
            if near and key not in names:
                return False, (
                    f"in the checkpoint of {save.worker.name} a weight is called {key!r}; the "
                    f"model calls it {near[0]!r}"
                )
    return (True, f"{len(run.saves)} checkpoints") if run.saves else None


@check("3_fault_tolerance", "resume")
def saved_complete(run):
    """A checkpoint holds the newest weights, the optimizer's state, and how many epochs have run.

    A run needs all three to resume as if nothing had happened.
    """
    if not run.saves:
        return None
    for save in run.saves:
        after = f"after epoch {save.epochs}, {save.worker.name}"
        if save.step and not save.prints.issuperset(save.step["parameters"]):
            return False, f"{after} did not save its newest weights"
        if save.step and not save.prints.issuperset(save.step["state"]):
            return False, f"{after} did not save the optimizer's state"
    for name in run.saves[-1].numbers:
        if _counts(name, run.saves):
            return True, f"{len(run.saves)} checkpoints, counted by {name}"
    return False, "no number in the checkpoints tells how many epochs have run"


def _counts(name, saves):
    """Whether it is the number of epochs or of steps that have run, or that of the last one."""
    counts = [(save.numbers.get(name, 0), save.epochs) for save in saves if save.epochs]
    return any(
        len({(number + first) / epochs for number, epochs in counts}) == 1
        and counts[0][0] + first > 0
        for first in (0, 1)
    )


@check("2_multigpu", "save-once")
def last_epoch_saved(run):
    """The script saves every `save_every` epochs, and after the last epoch.

    The number of epochs may be no multiple of save_every. The last epoch's weights must be saved
    all the same.
    """
    asked = run.all("act")[-1]["asked"]
    total, every = asked["total_epochs"], asked["save_every"]
    trained = [worker for attempt in run.attempts for worker in attempt.trained]
    ran = max((worker.started_after + len(worker.epochs) for worker in trained), default=0)
    if not run.saves or run.crash or run.first("hung", "late"):
        return None
    if run.first("fault") and len(run.attempts) < 2:  # that nothing restarted is another's
        return None
    if ran != total:
        return False, f"{total} epochs were asked for, but {ran} ran"
    saved = {save.epochs for save in run.saves}
    if missing := {*range(every, total, every), total} - saved:
        return False, f"{total} epochs ran, but nothing was saved after epoch {min(missing)}"
    totals = [act["asked"]["total_epochs"] for act in run.all("act")]
    if extra := saved.difference(range(every, total, every), totals):
        return False, f"it was saved after epoch {min(extra)}, though save_every is {every}"
    return True, f"saved after epochs {', '.join(map(str, sorted(saved)))}"
