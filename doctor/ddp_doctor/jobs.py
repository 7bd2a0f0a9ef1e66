"""Facts belong to a job: the ranks of one launcher, or of one group's store.

A command may run several, one after the other or together. No rule looks across them.
"""

from copy import copy
from functools import cached_property
from pathlib import Path

from .recorded_run import Run, Worker

BEGUN = ("joining", "joined", "step", "backward")  # facts of a process that is part of a job


def jobs(run: Run) -> list[Run]:
    """A view of the run for each of its jobs; the run itself, if there are fewer than two."""
    by_pid = {fact["pid"]: fact for fact in run.all("process")}
    groups = []  # of workers
    for worker in sorted(filter(_begun, run.processes), key=lambda one: one.process["t"]):
        for group in groups:
            if _belongs(worker, group, by_pid):
                group.append(worker)
                break
        else:
            groups.append([worker])
    if len(groups) < 2:
        return [run]
    groups.sort(key=lambda group: max(worker.facts[-1]["t"] for worker in group))
    owner = {worker.process["pid"]: n for n, group in enumerate(groups) for worker in group}
    for pid, n in [*owner.items()]:  # the launchers of one job alone
        above = by_pid[pid]["parent"]
        owner[above] = n if owner.get(above, n) == n else len(groups) - 1
    whose = {pid: _owner(pid, by_pid, owner, len(groups) - 1) for pid in by_pid}
    return [_view(run, group, n, groups, whose) for n, group in enumerate(groups)]


def _begun(worker):
    return worker.first(*BEGUN)


def _belongs(worker: Worker, group: list[Worker], by_pid) -> bool:
    """Whether it has the launcher or the store of a group, and a place in it that is free."""
    if worker.node:
        return True  # the doctor itself runs one job on two nodes
    attempt, place = worker.process["attempt"], _launcher(worker, by_pid)
    peers = [other for other in group if other.process["attempt"] == attempt]
    if worker.rank is not None and worker.rank in [other.rank for other in peers]:
        return False
    store, stores = _store(worker), {*filter(None, map(_store, peers))}
    if store and stores:
        return store in stores
    return place in [_launcher(other, by_pid) for other in group]


def _store(worker):
    """Where its group meets; "" for a process alone, or if that is not known."""
    joining, given = worker.first("joining") or {}, worker.process
    if worker.rank is None:
        return ""
    return str(joining.get("address") or joining.get("port") or given["port"] or "")


def _launcher(worker, by_pid):
    """The process that has started it: torchrun's agent, or the outermost Python."""
    process, seen = worker.process, set()
    while (above := by_pid.get(process["parent"])) and process["pid"] not in seen:
        seen.add(process["pid"])
        if worker.process["torchrun"] and not above["torchrun"]:
            return above["pid"]
        process = above
    return process["pid"]


def _owner(pid, by_pid, owner, last):
    """The job of a process, or of the nearest of those that have started it; else the last."""
    seen = set()
    while pid not in owner and pid in by_pid and pid not in seen:
        seen.add(pid)
        pid = by_pid[pid]["parent"]
    return owner.get(pid, last)


def _view(run, group, number, groups, whose):
    """The facts of one job, as a run. The command's status, and its end, are those of the last."""
    one = copy(run)
    for kind in type(run).__mro__:
        for name, value in vars(kind).items():
            if isinstance(value, cached_property):
                one.__dict__.pop(name, None)
    own = [fact for fact in run.facts if fact["pid"] and whose.get(fact["pid"]) == number]
    last, pids = number == len(groups) - 1, {fact["pid"] for fact in own}
    ends = [fact for fact in run.all("hung", "late") if last or pids & {*fact["alive"]}]
    own += ends + [fact for fact in run.all("leftover", "output") if last]
    own += [fact for fact in run.all("stack") if pids & {fact["of"], fact["parent"]}]
    own.sort(key=lambda fact: fact["t"])
    ended = [fact for fact in run.all("ended") if last]
    if not last and not ends:
        status = int(any(fact["kind"] == "raised" for fact in own))
        ended = [{"kind": "ended", "t": own[-1]["t"], "pid": 0, "status": status, "act": 0}]
    one.facts = [run.first("act") | {"t": own[0]["t"]}, *own, *ended]
    script = next((word for word in group[0].process["argv"] if word.endswith(".py")), "a command")
    one.title = f"job {number + 1} of {len(groups)} ({Path(script).name})"
    return one
