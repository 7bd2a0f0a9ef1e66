"""Processes, their group, and how they end."""

import re

from ddp_doctor.recorded_run import lost
from ddp_doctor.rules.calls import calls, differences
from ddp_doctor.rules.wording import ranks

from ..verdicts import check
from .evidence import and_ending, ending, wait, waiting


@check("index")
def is_python(run):
    """Python can read the file.

    Python names the line where it stopped. The mistake may be in the line above: look for an open
    bracket, a missing colon, or a wrong indentation.
    """
    crash = run.crash
    if crash and crash["type"] in ("SyntaxError", "IndentationError", "TabError"):
        return False, f"{crash['type']}: {crash['message']} ({crash['where']})"
    return True, "no syntax error"


@check("2_multigpu", "start-the-processes", "multigpu", "multinode")
def one_process_each(run):
    """As many processes train as were asked for.

    A script runs in one process until it starts others. The main process must start as many as
    utils.num_processes() says, with `nprocs` of mp.spawn, and give each its own number. Each then
    runs the whole training.
    """
    asked, workers = run.asked["processes"], run.attempts[0].workers
    own = {worker.process["pid"]: worker.process["parent"] for worker in run.processes}
    if len(workers) > asked and any(own.get(parent) in own for parent in own.values()):
        return False, f"{len(workers)} processes: those that the script started started others"
    if len(workers) >= asked:
        return True, f"{len(workers)} processes"
    if run.crash and own.get(run.crash["pid"]) in own:
        return None  # the parent has ended the others, perhaps before they began
    return False, f"{len(workers)} of {asked} processes{and_ending(run)}"


@check("3_fault_tolerance", "let-torchrun-start", "multigpu_torchrun")
def started_by_torchrun(run):
    """torchrun starts the processes that train.

    It sets RANK, LOCAL_RANK, WORLD_SIZE and the address and port where they meet in the environment
    of each, so the script must set none of these, and start no process. The script refuses to run
    under torchrun unless the command in its docstring contains torchrun.
    """
    asked, workers = run.asked["processes"], run.attempts[0].workers
    torchruns = [worker for worker in workers if worker.process["torchrun"]]
    own = {worker.process["pid"] for worker in run.processes}
    if children := [worker for worker in workers if worker.process["parent"] in own]:
        return False, f"the script itself started {len(children)} processes"
    refused = run.crash and run.crash["type"] == "UserError" and not run.attempts[0].trained
    if len(torchruns) < asked or refused:
        return False, ending(run) or f"torchrun started {len(torchruns)} of {asked} processes"
    for worker in torchruns:
        joining, given = worker.first("joining"), worker.process["port"]
        if joining and joining["port"] and str(joining["port"]) != given:
            told = f"{worker.name} went to port {joining['port']}, but torchrun had chosen {given}"
            return False, told
    return True, f"{len(torchruns)} processes"


@check("2_multigpu", "construct-the-process-group")
def joined(run):
    """All processes are in one process group, each with its own rank.

    Processes cannot reach each other until every one has called init_process_group. They must agree
    on the world size and on the address where they meet, and each needs a different rank.
    """
    asked = run.asked["processes"]
    workers, members = run.attempts[0].workers, run.attempts[0].ranks
    wanted = [worker.first("wanted") for worker in workers if worker.first("wanted")]
    size = max((fact["world_size"] or 0 for fact in wanted), default=0)
    if size > len(workers) and run.stuck:
        found = f"the world size is {size}, but {len(workers)} processes were started"
        return False, f"{found}; {waiting(run)}"
    chosen = [fact["rank"] for fact in wanted if fact["rank"] is not None]
    if twice := [rank for rank in chosen if chosen.count(rank) > 1]:
        return False, f"{len(twice)} processes have rank {twice[0]}{and_ending(run)}"
    if chosen and 0 not in chosen and run.stuck:
        return False, f"no process has rank 0: the ranks are {', '.join(map(str, chosen))}"
    if not members:
        output = "".join(fact["text"] for fact in run.all("output"))
        unknown = re.search(r"addresses of \((\S+), \d+\) cannot be retrieved", output)
        why = f": the name {unknown[1]} has no address" if unknown else ""
        return False, f"no process joined a group{why}{and_ending(run)}"
    numbers = [worker.rank for worker in members]
    sizes = {worker.first("joined")["world_size"] for worker in members}
    if sorted(numbers) != list(range(asked)) or sizes != {asked}:
        found = f"ranks {numbers} and world sizes {sorted(sizes)}"
        return False, f"{found}, but {asked} processes were asked for{and_ending(run)}"
    for worker in members:
        if (step := worker.first("step")) and step["t"] < worker.first("joined")["t"]:
            return False, f"rank {worker.rank} joined after its first step: join before you train"
    return True, f"ranks {', '.join(map(str, numbers))}"


@check("2_multigpu", "construct-the-process-group", "multigpu")
def port_of_its_own(run):
    """The processes meet at a port that is free.

    Another run, or another learner on the same machine, may use any port that you write into the
    script. The system knows a free one: utils.free_port asks it.
    """
    joining = next((w.first("joining") for w in run.attempts[0].ranks), None)
    asked = {fact["port"] for fact in run.all("bound")}
    if joining and joining["port"] and not asked & {0, joining["port"]}:
        return False, f"they met at port {joining['port']}, and did not ask whether it was free"
    return (True, "a port from the system") if joining else None


@check("2_multigpu", "construct-the-process-group")
def device_of_its_own(run):
    """On every node, each process chooses another device: 0, 1, 2 and so on.

    A node's devices are numbered from 0. Before it joins the group, each process gives its number
    on the node to utils.set_device. RANK counts over all nodes, so on the second node it is too
    high; LOCAL_RANK counts on one node.
    """
    chosen = 0
    for attempt in run.attempts:
        for node in dict.fromkeys(worker.node for worker in attempt.ranks):
            workers = [w for w in attempt.ranks if w.node == node]
            if none := [worker for worker in workers if not worker.first("device")]:
                return False, f"{ranks(none)} chose no device: call utils.set_device"
            devices = [worker.first("device")["index"] for worker in workers]
            chosen += len(devices)
            if None not in devices and {*devices} != {*range(len(devices))}:
                told = f"{ranks(workers)} chose device {', '.join(map(repr, devices))}"
                return False, f"{f'on {node}, ' if node else ''}{told}"
    return True, f"devices chosen: {chosen}"


@check("symptoms")
def all_take_part(run):
    """All ranks call every collective, in the same order, and wait for its end.

    A collective returns when every rank has called it. Look for one behind an `if` on the rank, for
    a `return`, `continue` or `break` that only some ranks take, or for a loop that is longer on one
    rank. All ranks must decide alike.
    """
    for attempt in run.attempts:
        raised = [fact for worker in attempt.workers for fact in worker.all("raised", "fault")]
        failed = any(fact["kind"] == "fault" or not lost(fact) for fact in raised)
        failed = failed or "SIGSEGV" in str(run.crash)
        for number, (first, mine), (other, theirs) in differences(attempt.ranks):
            if mine and theirs:
                return False, (
                    f"{_failed(first, mine) or _failed(other, theirs)}call {number} of "
                    f"{first.name} is {_said(first, mine)}, that of {other.name} is "
                    f"{_said(other, theirs)}"
                )
            if not failed:  # after a failure, others make fewer calls
                (more, call), fewer = ((first, mine), other) if mine else ((other, theirs), first)
                return False, (
                    f"{more.name} calls {_said(more, call)}, {fewer.name} does not; "
                    f"{wait(run, more)}; {wait(run, fewer)}"
                )
    if run.stuck:
        return False, waiting(run)
    ended = {fact["pid"] for fact in run.all("raised")}  # before they could wait
    if left := next((fact for fact in run.all("unawaited") if fact["pid"] not in ended), None):
        return False, f"{run.who(left)} did not wait for its all_reduce ({left['where']})"
    members = run.attempts[0].ranks
    return (True, f"{len(calls(members[0]))} calls on each rank") if members else None


def _failed(worker, call):
    fault = worker.first("fault")
    return f"after the failure of {worker.name}, " if fault and fault["t"] < call["t"] else ""


def _said(worker, call):
    what, epoch = call.get("what", "backward"), worker.epoch(call["t"])
    size = f" of {call['bytes']} bytes" if call.get("bytes") and what != "DDP" else ""
    where = f" ({call['where']})" if call["where"] else ""
    return f"{what}{size}{where}{f' in epoch {epoch}' if epoch else ''}"


@check("3_fault_tolerance", "name-the-cause", "multigpu_torchrun")
def cause_is_named(run):
    """When a worker fails, torchrun learns why.

    torchrun sees only that a worker has ended. It reads the exception from a file. A decorator of
    torch.distributed.elastic writes that file for exceptions in the function that it decorates.
    """
    failed = [worker for worker in run.processes if worker.first("fault")]
    ends = [worker.first("exit") for worker in failed]
    if not failed or not all(ends):
        return None
    if all(end["cause"] for end in ends):
        return True, f"{failed[0].name} wrote its error file"
    return False, f"{failed[0].name} failed without writing its error file"


@check("2_multigpu", "end-the-process-group")
def left_the_group(run):
    """Every rank leaves the process group, after the last checkpoint is written.

    The group has threads and connections, which must end before Python does. A rank that finishes
    early must wait for the rank that is still writing. If a thread writes, its rank must wait for
    the thread, so that a save that fails is an error of the run.
    """
    workers = run.attempts[-1].ranks
    if not workers or run.crash or run.first("hung", "late"):
        return None
    if stay := [worker for worker in workers if not worker.first("left")]:
        return False, f"{ranks(stay)} never call{'s' * (len(stay) == 1)} destroy_process_group"
    for last in run.all("saved", "renamed")[-1:]:
        later = [fact for fact in run.all("done") if fact["t"] > last["t"]]
        # A backward pass does not always communicate.
        met = {fact["pid"] for fact in later if fact.get("what") != "backward"}
        apart = any(worker.process["pid"] not in met for worker in workers)
        if apart and not last.get("together"):
            told = f"{run.who(last)} wrote the last file"
            return False, f"{told}, and after that the ranks did not wait for each other"
    return True, f"all {len(workers)} ranks, after the last file"


@check("symptoms")
def ends_well(run):
    """The run ends by itself, without an error, and leaves no process behind.

    Look at the line that is named, and print what it uses. Of several errors, read the first: later
    ones often come from ranks that lost their peer.
    """
    if left := run.all("leftover"):
        were = "process was" if len(left) == 1 else "processes were"
        return False, f"{len(left)} {were} still running when the command had ended"
    told = ending(run)
    return (False, told) if told else (True, "status 0")


@check("2_multigpu", "end-the-process-group")
def ends_when_a_rank_fails(run):
    """When a rank fails, the command ends, with a status other than 0, and no process is left.

    The check has caused a failure of rank 1. mp.spawn ends the other ranks then, and raises an
    exception. So do not catch the exception, and wait for no other rank in a `finally`. A program
    that starts its processes by other means must end them by itself.
    """
    if not run.first("fault"):
        return None
    if run.first("hung", "late"):
        return False, f"rank 1 failed, and the command did not end; {waiting(run)}"
    if left := run.all("leftover"):
        return False, f"rank 1 failed; {len(left)} processes were still running after the command"
    status = run.first("ended")["status"]
    return bool(status), f"rank 1 failed; the command ended with status {status}"
