"""Facts belong to a job: the ranks of one launcher, or of one group's store."""

from copy import copy
from functools import cached_property
from pathlib import Path

from .recorded_run import Run


def jobs(run: Run) -> list[Run]:
    """A view of the run for each of its jobs; the run itself, if there are fewer than two."""
    by_pid = {fact["pid"]: fact for fact in run.all("process")}
    begun = [w for w in run.processes if w.first("joining", "joined", "step", "backward")]
    groups = []
    for worker in sorted(begun, key=lambda one: one.process["t"]):
        home = next((group for group in groups if _belongs(worker, group, by_pid)), None)
        home.append(worker) if home else groups.append([worker])
    if len(groups) < 2:
        return [run]
    groups.sort(key=lambda group: max(worker.facts[-1]["t"] for worker in group))
    number = {}  # of the job of a process; what no job has alone is the last one's
    for pids in (starters, lambda process, _: [process["pid"]]):
        for n, group in enumerate(groups):
            number |= {pid: n for one in group for pid in pids(one.process, by_pid)}
    for pid, process in by_pid.items():
        known = (number[above] for above in starters(process, by_pid) if above in number)
        number.setdefault(pid, next(known, len(groups) - 1))
    return [_view(run, n, groups, number) for n in range(len(groups))]


def starters(process: dict, by_pid: dict[int, dict]) -> list[int]:
    """It, and those that have started it, up to torchrun's agent or the outermost Python."""
    found, of_torchrun = {}, process["torchrun"]
    while process and process["pid"] not in found:
        found[process["pid"]] = process
        done = of_torchrun and not process["torchrun"]
        process = None if done else by_pid.get(process["parent"])
    return [*found]


def _belongs(worker, group, by_pid):
    """Whether it has the launcher or the store of a group, and a place in it that is free."""
    if worker.node:
        return True  # the doctor itself runs one job on two nodes
    peers = [one for one in group if one.process["attempt"] == worker.process["attempt"]]
    if worker.rank is not None and worker.rank in [one.rank for one in peers]:
        return False
    store, stores = _store(worker), {*filter(None, map(_store, peers))}
    if store and stores:
        return store in stores
    launchers = {starters(one.process, by_pid)[-1] for one in group}
    return starters(worker.process, by_pid)[-1] in launchers


def _store(worker):
    """Where its group meets; "" for a process alone, or if that is not known."""
    joining = worker.first("joining") or {}
    known = joining.get("address") or joining.get("port") or worker.process["port"]
    return str(known or "") if worker.rank is not None else ""


def _view(run, number, groups, job_of):
    """The facts of one job, as a run. The command's own status is that of the last."""
    one, last = copy(run), number == len(groups) - 1
    for name in [*vars(run)]:
        if isinstance(getattr(type(run), name, None), cached_property):
            delattr(one, name)
    own = [fact for fact in run.facts if fact["pid"] and job_of.get(fact["pid"]) == number]
    pids = {fact["pid"] for fact in own}
    ends = [fact for fact in run.all("hung", "late") if last or pids & {*fact["alive"]}]
    ends += [fact for fact in run.all("ended", "leftover", "output") if last]
    ends += [fact for fact in run.all("stack") if pids & {fact["of"], fact.get("parent")}]
    if not ends:
        status = int(any(fact["kind"] == "raised" for fact in own))
        ends = [{"kind": "ended", "t": own[-1]["t"], "pid": 0, "status": status, "act": 0}]
    begin = run.first("act") | {"t": own[0]["t"]}
    one.facts = sorted([begin, *own, *ends], key=lambda fact: fact["t"])
    script = next((w for w in groups[number][0].process["argv"] if w.endswith(".py")), "a command")
    one.title = f"job {number + 1} of {len(groups)} ({Path(script).name})"
    return one
