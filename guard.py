"""Clear failures: refuse wrong launches, report mistakes in one line, leave no process behind.

utils.py calls this file. No lesson explains it, and you need not read it.
"""

import argparse
import gc
import hashlib
import os
import resource
import signal
import socket
import sys
import tempfile
import textwrap
import threading
import time
import traceback
from multiprocessing import util
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed import DistNetworkError

_path = None  # of the checkpoint, set by check_path
before_exit = []  # functions that a failing process calls before it exits
PART = ".part"
AWAY = "move it away to start afresh, or pass another --checkpoint_path"
NO_ADDRESS = "add it to /etc/hosts, or, if there is one node, export PET_LOCAL_ADDR=127.0.0.1"
MISFIT = "{} does not fit this run ({}): " + AWAY


class UserError(Exception):
    """A mistake that the user can fix. Shown as one line, without a traceback."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        told = message if len(message) < 300 else f"{message[:150]} …"
        raise UserError(f"{told} (--help lists the options)")


def check_launcher(manual, gpus):
    """Refuse any launcher but that of `manual`. From now on, exit when torchrun is gone."""
    if manual is None:
        raise UserError("python -OO drops the docstring, which says how to start this: use -O")
    if 0 <= (most := resource.getrlimit(resource.RLIMIT_NOFILE)[0]) < 64:  # -1: any number
        raise UserError(f"at most {most} files may be open here, too few: ulimit -n 1024")
    lines = [line.strip().rstrip("\\") for line in manual.splitlines() if line.startswith("    ")]
    command = " ".join(" ".join(lines).split())
    if "torchrun" not in manual:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise UserError(f"not for torchrun, start it as documented: {command}")
        return
    env = {"LOCAL_WORLD_SIZE": os.environ.get("WORLD_SIZE"), **os.environ}
    counts = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    limits = dict.fromkeys(counts, 999_999) | {"MASTER_PORT": 65_535, "MASTER_ADDR": None}
    for name, most in limits.items():
        if name not in env:
            raise UserError(f"no {name} in the environment, start it with torchrun: {command}")
        if most and not (env[name].isdecimal() and float(env[name]) <= most):
            raise UserError(f"{name} is {env[name]!r}, but must be a number from 0 to {most}")
    for own, every in (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")):
        if int(env[own]) >= int(env[every]):  # or all would wait for ranks that no process has
            raise UserError(f"{own} is {env[own]}, but must be below {every}, {env[every]}")
    try:
        socket.getaddrinfo(os.environ["MASTER_ADDR"], None)  # torch retries for over half an hour
    except (OSError, UnicodeError):  # UnicodeError: a..b
        raise UserError(f"no address for {os.environ['MASTER_ADDR']}: {NO_ADDRESS}") from None
    check_gpus(int(env["LOCAL_WORLD_SIZE"]), gpus, "--nproc_per_node")
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torchrun gives up if it reads half an error file, so @record writes it under another name.
        os.environ["TORCHELASTIC_ERROR_FILE"] += PART
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def check_gpus(processes, gpus, setting):
    if 0 < gpus < processes:
        has = f"{processes} processes, but {gpus} GPU{'s' * (gpus > 1)}"
        cpu = "CUDA_VISIBLE_DEVICES= (empty) to train on the CPU"
        raise UserError(f"{has}: set {setting}={gpus}, or {cpu}")


def check_path(path, must_be_new=False):
    """Refuse a path that cannot be read and written or, if it `must_be_new`, exists."""
    global _path
    _path, advice = path, "pass another --checkpoint_path"
    if must_be_new and os.path.lexists(path):
        raise UserError(f"{path} exists, and this script starts afresh: move it away, or {advice}")
    path = os.path.realpath(path)
    if os.path.lexists(path) and not (os.path.isfile(path) and os.access(path, os.R_OK)):
        raise UserError(f"--checkpoint_path {path} is no file that you can read: {advice}")
    folder, name = os.path.split(path)
    try:  # with a name as long as those of `write`
        tempfile.NamedTemporaryFile(dir=folder, prefix=f".{name}", suffix="x" * 29).close()
    except OSError as error:
        raise UserError(f"cannot write to {folder} ({error.strerror}): {advice}") from None


def _end_with(parent):
    """Exit when torchrun does: a job started again would write the same checkpoint as we."""
    pid = parent
    try:  # torchrun, a Python above us, may have died while we imported torch
        while pid and "python" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # another user's process, or no /proc, as on macOS
        pid = pid != 1  # else an init has adopted us
    while pid and os.getppid() == parent:
        time.sleep(1)
    os.write(2, f"{Path(sys.argv[0]).name}: torchrun is gone, so this worker ends\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)  # during a save, the old checkpoint stays whole


def install_excepthook():
    """From now on a `UserError` ends the program with one line, printed by one process only."""
    sys.excepthook = _excepthook
    # A shell's `&` makes us ignore SIGINT, by which mp.spawn ends workers whose parent has died.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def prepare_for_group():
    """Call this before `init_process_group`, so that the group can shut down cleanly."""
    # An optimizer's constructor imports torch._dynamo. If the group exists by then, its threads
    # outlive destroy_process_group, and may abort the interpreter while it shuts down.
    collecting = gc.isenabled()
    gc.disable()  # or each collection would traverse the imported modules
    import torch._dynamo  # noqa: F401

    gc.freeze()  # skip them at exit too, which saves half a second
    if collecting:
        gc.enable()
    if parent := mp.parent_process():
        if os.getppid() != parent.pid:  # it died while we imported torch, so mp.spawn cannot end us
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        util.Finalize(None, _end_worker, exitpriority=100)
    elif _without_torchrun():
        threading.Thread(target=_wait_for_ranks, daemon=True).start()


def _wait_for_ranks():
    """Say what a rank waits for, and end it when rank 0 ends: the others would wait for ever."""
    where = "{MASTER_ADDR}:{MASTER_PORT}".format_map(os.environ)
    for seconds, what in ((5, "waiting for"), (1800, "gave up waiting for")):
        time.sleep(seconds)
        if dist.is_initialized():
            return
        line = f"{what} all {os.environ['WORLD_SIZE']} processes to come to {where}\n"
        os.write(2, f"{Path(sys.argv[0]).name}: {line}".encode())
    os._exit(1)


def _end_worker():
    """Exit as `_excepthook` does, because a failing mp.spawn worker never reaches that."""
    if error := sys.exception():  # mp.spawn has recorded the cause and is exiting
        _wait_if_peer_lost(error.__context__)
        os._exit(1)


def _excepthook(kind, error, trace):
    """Print one line if the user can fix it, the traceback otherwise; then exit."""
    _hand_over_error_file()
    _wait_if_peer_lost(error)
    cause = error
    while not _line(cause) and cause.__context__:
        cause = cause.__context__  # on a full disk, the error of @record hides ours
    status, line = _line(cause) or (1, None)
    if line:
        _say_once(line)
    else:  # not to sys.stderr: torch replaces it, to mark the lines with the rank
        traceback.print_exception(kind, error, trace, file=sys.__stderr__)
    for finish in before_exit:
        finish()
    for child in mp.active_children():
        child.kill()  # SIGTERM would wait in a stopped one
    print(end="", flush=True)
    sys.__stderr__.flush()
    # Skip the interpreter's shutdown, because gloo threads may still hold tensors.
    os._exit(status)


def _hand_over_error_file():
    """Give the file of @record the name that torchrun reads, unless a full disk left it empty."""
    part = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    if part.endswith(PART):
        os.environ["TORCHELASTIC_ERROR_FILE"] = whole = part.removesuffix(PART)
        if os.path.exists(part) and os.path.getsize(part):
            os.replace(part, whole)


def _wait_if_peer_lost(error):
    """Wait, so that the launcher sees the first failure, reports that one, and ends us."""
    if _lost_peer(error):
        time.sleep(5 if _without_torchrun() else 2)  # 5: until that process has printed its line


def _without_torchrun():
    """Whether mpirun, srun or the like started us. They end all ranks when the first one fails."""
    return "RANK" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ


def _lost_peer(error):
    """The message of a collective that lost its peer process; None for any other error."""
    last = str(error).strip().rpartition("\n")[2]
    if any(sign in last for sign in ("closed by peer", "reset by peer", "Broken pipe")):
        return last.partition("] ")[2].partition(". ")[0]
    return None


def _line(error):
    """The exit status and the line for an exception; None if it needs a traceback."""
    text = str(error).strip()
    last = text.rpartition("\n")[2]
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, UserError):
        return 2, text.replace("\n", " ")
    if isinstance(error, mp.ProcessRaisedException) and last.startswith("guard.UserError: "):
        return 2, last.removeprefix("guard.UserError: ")
    if "Unable to find address for: " in last:
        return 2, f"GLOO_SOCKET_IFNAME is {last.split()[-1]}, but no such interface has an address"
    met = ", in init_process_group\n" not in text or "BackendError" in text  # NCCL: see the trace
    if isinstance(error, mp.ProcessRaisedException) and not met:
        fix = "start each of them once, with the same address"
        return 1, f"cannot meet the other processes ({last}): {fix}"
    if _lost_peer(error):
        return 1, f"lost another process, whose message says why ({_lost_peer(error)})"
    if isinstance(error, mp.ProcessRaisedException | mp.ProcessExitedException | DistNetworkError):
        return 1, text  # the worker's traceback, since this parent's says nothing; or a taken port
    # A checkpoint did not fit. SGD loads AdamW's state, but fails in its first step.
    frames = traceback.extract_tb(error.__traceback__)
    loading = any(frame.name == "load_state_dict" for frame in frames)
    in_optimizer = frames and os.path.join("torch", "optim", "") in frames[-1].filename
    machine = any(sign in text for sign in ("out of memory", "allocate memory", "CUDA error"))
    if (loading or in_optimizer) and not machine and _path and os.path.exists(_path):
        why = textwrap.shorten(f"{type(error).__name__}: {last}", 160)  # it may list every weight
        return 2, MISFIT.format(_path, why)
    return None


def _say_once(line):
    """Write `line` to stderr, unless another worker or an earlier attempt already has."""
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # RUN/attempt_N/LOCAL_RANK/error.json
    if error_file and "TORCHELASTIC_RUN_ID" in os.environ:
        kind = line.partition("(")[0].encode(errors="replace")
        said = Path(error_file).parents[2] / hashlib.sha256(kind).hexdigest()
        try:
            said.touch(exist_ok=False)
        except OSError as error:
            if isinstance(error, FileExistsError):  # else better to print it twice than never
                return
    elif _without_torchrun() and os.environ["RANK"] != "0":
        time.sleep(3)  # if rank 0 prints it, the launcher ends us meanwhile
    sys.__stderr__.write(f"{Path(sys.argv[0]).name}: {line}\n")
