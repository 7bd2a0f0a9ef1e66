"""Does the run end, and how?"""

import re
import signal

from ..jobs import starters
from ..recorded_run import lost, matched, shown
from ..rule import rule
from .calls import calls, differences, in_a_row, named
from .drawn_samples import loadings
from .wording import branches, constants, exception, left_at, lines_with, ranks, trees, where

NOT_OURS = ("ChildFailedError", "ProcessExitedException", "SignalException", "KeyboardInterrupt")

LONG = 60  # seconds
NO_GPU = re.compile("no NVIDIA driver|not compiled with CUDA|No CUDA GPUs|ProcessGroupNCCL"
                    "|NCCL built in|_cuda_setDevice|CUDA driver initialization", re.I)  # fmt: skip
EXITED = re.compile(r"exitcode: (-\d+)\) local_rank: \d+ \(pid: (\d+)\)")  # by torchrun
ON_CPU = "The script needs a GPU, and PyTorch finds none here. Add `--cpu 2` to run it without."
TOGETHER = (
    "All ranks must make a call together, and leave a loop together. Let them decide by one value,"
    " such as an all-reduced one."
)
KILLED = "It raised no exception: read what it printed last, above the launcher's own traceback."


@rule("error")
def calls_differ(run):
    """The ranks make different collective calls.

    The n-th call of one rank meets the n-th call of the others, whatever they are. Ranks that
    disagree hang, crash, or mix up data.
    """
    workers = run.attempts[-1].ranks
    if not (run.status or run.first("hung", "late")):
        return
    for number, (one, mine), (other, theirs) in differences(workers):
        if mine and theirs:
            known = {call["where"] for call in calls(other)}
            place = (theirs if mine["where"] in known else mine)["where"]
            again, loop = in_a_row(run, number, one, other)
            told = f"call {number}: {one.name} {named(mine)}, {other.name} {named(theirs)}{again}"
            for who, inside, outside in ((other, mine, theirs), (one, theirs, mine)):
                if not loop and (left := left_at(run, inside["where"], outside["where"])):
                    yield f"{told}; {who.name} alone may have left the loop here", left, TOGETHER
            yield told, loop or place
        elif run.first("hung"):
            who, call = (one, mine) if mine else (other, theirs)
            yield f"{who.name} makes call {number}, {named(call)}, alone", call["where"]


@rule("error")
def nothing_trained(run):
    """The command ends well without a single optimizer step.

    A CI job would pass without a run. On a machine without a GPU, a script that starts one process
    per GPU starts none: add `--cpu 2`.
    """
    some = any(trained(w) or w.first("loaded") for w in run.processes)
    if run.status == 0 and not some and not any(crashed(run)):
        started = len(run.attempts[0].ranks)
        yield f"exit status 0, no optimizer step; {started} processes joined a group", None


def trained(worker):
    """Also without an optimizer of torch."""
    return worker.first("step", "backward") or worker.counts.keys() & {"backward", "grad"}


@rule("error")
def crashed(run):
    """A process ends with an exception, or is killed.

    The first exception is the cause, also of the lost connections that other ranks report.
    """
    workers = run.attempts[-1].workers
    failed = workers and all(worker.first("raised") for worker in workers)  # a parent may wait on
    if run.first("hung", "late") and not failed:
        return
    raised = run.all("raised") if run.status else _hidden(run)
    own = [f for f in raised if f["type"] not in NOT_OURS and not lost(f)]
    if own:
        advice = ON_CPU if NO_GPU.search(own[0]["message"]) else None
        unused = _unused(run) if "finished reduction" in own[0]["message"] else ""
        yield f"{run.who(own[0])}: {exception(own[0])}{unused}", own[0]["where"], advice
    if not run.status:
        return
    last, status = run.attempts[-1], run.status
    if alone := _alone(last.ranks):
        told = f"{run.who(alone)} waits for others, which have ended well"
        taken, left = branches(run, alone["where"])
        told += f"; did it alone take the branch of {taken}?" if taken else ""
        yield told, left or alone["where"], TOGETHER
    gone = [w for w in last.ranks or (last.workers if run.status < 0 else [])
            if not w.first("exit", "raised")]  # fmt: skip
    for fact in run.all("raised"):  # mp.spawn knows which process was first
        if found := re.search(r"process (\d+) terminated with signal (SIG\w+)", fact["message"]):
            number, status = int(found[1]), -signal.Signals[found[2]]
            gone = [w for w in gone if w.rank == number] or gone
    for found in filter(None, (EXITED.search(fact["text"]) for fact in run.all("logged"))):
        if named := [w for w in gone if w.process["pid"] == int(found[2])]:
            gone, status = named, int(found[1])
    if gone:
        place = (gone[0].waits or {}).get("where")
        differ = any(mine and other for _, (_, mine), (_, other) in differences(last.ranks))
        told = "was killed after calls that differ" if differ else _killed(status)
        yield f"{gone[0].name} {told}", place, KILLED


def _hidden(run):
    """What ended workers, though a launcher's exit status hides it."""
    last = run.attempts[-1]
    raised = [fact for worker in last.trained or last.workers for fact in worker.all("raised")]
    return sorted(raised, key=lambda fact: fact["t"])


def _alone(ranks):
    """The exception of the last rank, if it lost its peers because they had all ended well."""
    raised = [fact for worker in ranks for fact in worker.all("raised") if lost(fact)]
    well = [w for w in ranks if (w.first("exit") or {"status": 1})["status"] in (0, None)]
    ended = [worker for worker in well if not worker.first("raised")]
    return raised[0] if raised and ranks and len(ended) == len(ranks) - 1 else None


def _killed(status):
    number = -status if status < 0 else status - 128
    known = {s.value: s.name for s in signal.Signals}
    name = known.get(number)
    why = {
        "SIGKILL": "the system may have run out of memory",
        "SIGABRT": "a native library gave up, and has printed why",
        "SIGBUS": "its shared memory (/dev/shm) may be full",
        "SIGSEGV": "a native library accessed wrong memory",
    }.get(name, "the launcher's output may name the signal")
    return f"was killed{f' by {name}' if name else ''}: {why}"


def _unused(run):
    for worker in run.trained:
        for fact in worker.all("step"):
            if fact["without"]:
                return f"; without gradient at step {fact['n']}: {', '.join(fact['without'][:5])}"
    return ""


@rule("error")
def hung(run):
    """All ranks wait for each other.

    Every rank must make the same collective calls in the same order. Look for a branch that only
    one rank takes: validation, saving, an early stop, one batch more.
    """
    if run.first("hung") or _all_wait_long(run):
        ranks = run.attempts[-1].workers
        calls = [f"{w.name} in {_call(w.waits)}" for w in ranks if w.waits]
        gone = [f"{w.name} has ended" for w in ranks if w.first("exit") and not w.waits]
        waits = next((w.waits["where"] for w in ranks if w.waits), None)
        yield "; ".join(calls + gone), waits


def _all_wait_long(run):
    """Whether the limit ended ranks that had long waited: with NCCL, waiting looks like work."""
    late = any("nccl" in fact["backend"] for fact in run.all("joined")) and run.first("late")
    alive = [w for w in run.attempts[-1].workers if not w.first("exit", "raised")]
    return late and alive and all(w.waits and late["t"] - w.waits["t"] > LONG for w in alive)


def _call(fact):
    return f"{fact.get('what', fact['kind'])} ({fact['where']})"


@rule("warning")
def unequal_steps(run):
    """The ranks make different numbers of optimizer steps.

    The ranks with more steps train alone at the end, or hang. Give every rank as many batches as
    the others.
    """
    if lines_with(run, r"\bwith (Join|[\w.]+\.(Join|join))\("):  # for ranks that have ended
        return
    counted = [worker for worker in run.replicas if worker.counts]
    if found := _unequal_batches(run):
        yield found
    elif run.status == 0 and len({worker.number_of_steps for worker in counted}) > 1:
        shown = ", ".join(f"{w.name}: {w.number_of_steps:,}" for w in counted)
        same = len({worker.counts.get("backward") for worker in counted}) == 1
        yield shown, branches(run, where(counted, "step"))[0] if same else None


def _unequal_batches(run):
    """An epoch in which one rank's loader came to its end and another one's went on.

    Not if they leave the loop together, or begin their shares again.
    """
    if run.status == 0 and len({worker.number_of_steps for worker in run.replicas}) == 1:
        return None
    for facts in matched(run.trained, "loading", "loader", "nth").values() if run.status else ():
        own = [f for f in facts if f["size"] and f["batch_size"] and not f["replicas"]]
        batches = [-(-fact["size"] // fact["batch_size"]) for fact in own]
        if len({*batches}) > 1:  # a rank that is killed tells of no epoch
            return f"an epoch has {shown(batches)} batches on the ranks", own[0]["made"]
    for facts in matched(run.trained, "epoch", "loader", "nth").values():
        pairs = sorted(zip(facts, run.trained, strict=True), key=lambda pair: pair[0]["taken"])
        (least, short), (most, long) = pairs[0], pairs[-1]
        if most["taken"] > least["taken"] and least["whole"] and least["did"]["step"]:
            told = f"in one epoch {short.name} had {least['taken']} batches, {long.name}"
            made = loadings(run)[short, least["loader"]]["made"]
            return f"{told} {most['taken']}{'' if most['whole'] else ' or more'}", made
    return None


@rule("warning")
def left_running(run):
    """Processes still run when the command has ended.

    They keep memory, ports and GPUs. End what the script starts, also when it fails.
    """
    if left := run.all("leftover"):
        yield f"{len(left)} had to be killed", None


@rule("warning")
def fixed_port(run):
    """The script itself sets the port at which its processes meet.

    A second job on the same machine fails with EADDRINUSE. Use torchrun --standalone, or let the
    system choose a free port.
    """
    scripts = {worker.process["pid"]: worker.process for worker in run.processes}
    for worker in run.processes:
        # What the outermost process sets, those that it starts inherit.
        fact, given = worker.first("joining"), scripts[starters(worker.process, scripts)[-1]]
        if not fact or not fact["port"] or str(fact["port"]) == given["port"]:
            continue
        port = rf"(?<!\d){fact['port']}(?!\d)"
        if re.search(port, " ".join(given["argv"])):
            continue  # it is an option's value
        for sign in (re.escape(fact["address"] or "") or port, port):
            for path, tree in trees(run):
                if lines := [line for line, value in constants(tree) if re.search(sign, value)]:
                    yield f"port {fact['port']}", f"{path}:{min(lines)}"


@rule("note")
def group_not_left(run):
    """A process never calls destroy_process_group.

    Ranks that end at different times then print warnings, and with NCCL may hang at the end.
    """
    stay = [worker for worker in run.ranks if worker.first("joined") and not worker.first("left")]
    if run.status == 0 and stay:
        yield ranks(stay), None


def unexamined(run):
    """What these rules could not look at, and why."""
    loaded = run.first("loaded")
    if run.status == 0 and loaded and not any(map(trained, run.processes)):
        yield f"the training: no step was made; has the run in {loaded['path']} ended before?"
    if any(map(trained, run.processes)) and not run.trained:
        yield "the steps: none was made by an optimizer of torch"
