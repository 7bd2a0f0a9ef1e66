"""Clear failures: refuse wrong launches, report mistakes in one line, leave no process behind.

utils.py calls this file. No lesson explains it, and you need not read it.
"""

import argparse
import contextlib
import ctypes
import functools
import gc
import os
import re
import signal
import socket
import sys
import tempfile
import textwrap
import threading
import time
import traceback
import zlib
from multiprocessing import util
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp

_path = None  # of the checkpoint, set by check_path
before_exit = []  # functions that a failing process calls before it exits
PART = ".part"
AWAY = "move it away to start afresh, or pass another --checkpoint_path"
PERMANENT = "said-permanent"  # a file in torchrun's folder of the run, see `_say_once`
TORCHRUN = "TORCHELASTIC_RUN_ID" in os.environ
LOST = re.compile("closed by peer|reset by peer|likely closed|Broken pipe")  # a peer has ended


class UserError(Exception):
    """A mistake that the user can fix. Shown as one line, without a traceback."""


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise UserError(f"{message} (--help lists the options)")


def check_launcher(manual, gpus):
    """Refuse any launcher but that of `manual`. From now on, exit when torchrun is gone."""
    env = os.environ
    # Its last paragraph. Python 3.13 and later may strip the indent of a docstring.
    command = " ".join(manual.strip().rpartition("\n\n")[2].replace("\\\n", "").split())
    if "torchrun" not in manual:
        if TORCHRUN:
            raise UserError(f"not for torchrun, start it as documented: {command}")
        return
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR"):
        if not env.get(name):
            raise UserError(f"no {name} in the environment, start it with torchrun: {command}")
    try:
        socket.getaddrinfo(env["MASTER_ADDR"], None)  # torch retries for over half an hour
    except OSError:
        fix = "add it to /etc/hosts, or, if there is one node, export PET_LOCAL_ADDR=127.0.0.1"
        raise UserError(f"no address for {env['MASTER_ADDR']}: {fix}") from None
    check_gpus(int(env.get("LOCAL_WORLD_SIZE", env["WORLD_SIZE"])), gpus, "--nproc_per_node")
    if TORCHRUN:
        if Path(env["TORCHELASTIC_ERROR_FILE"]).parents[2].joinpath(PERMANENT).exists():
            os._exit(2)  # torchrun restarts us nevertheless, but this spares seconds per attempt
        # torchrun gives up if it reads half an error file, so @record writes it under another name.
        env["TORCHELASTIC_ERROR_FILE"] += PART
        _end_with_torchrun()


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
    try:
        tempfile.TemporaryFile(dir=os.path.dirname(path)).close()
    except OSError as error:
        why = f"{os.path.dirname(path)} ({error.strerror})"
        raise UserError(f"cannot write to {why}: {advice}") from None


def _end_with_torchrun():
    """Die when torchrun does: a job started again would write the same checkpoint as we."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, as mp.spawn does
    # Process 1 adopts us if torchrun died while we imported torch. In a container it is torchrun.
    if os.getppid() == 1 and "python" not in os.path.realpath("/proc/1/exe"):
        os._exit(1)


def install_excepthook():
    """From now on a `UserError` ends the program with one line, printed by one process only."""
    sys.excepthook = _excepthook


def prepare_for_group():
    """Call this before `init_process_group`, so that the group can shut down cleanly."""
    # An optimizer's constructor imports torch._dynamo. If the group exists by then, its threads
    # outlive destroy_process_group, and may abort the interpreter while it shuts down.
    gc.disable()  # or each collection would traverse the imported modules
    import torch._dynamo  # noqa: F401

    gc.enable()
    if parent := mp.parent_process():
        if not parent.is_alive():  # it died while we imported torch, so mp.spawn cannot end us
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        util.Finalize(None, _end_worker, exitpriority=100)
    elif _without_torchrun():
        timer = threading.Timer(5, _say_who_waits)
        timer.daemon = True
        timer.start()


def _say_who_waits():
    if not dist.is_initialized():
        where = "all {WORLD_SIZE} processes to come to {MASTER_ADDR}:{MASTER_PORT}"
        write(f"waiting for {where.format_map(os.environ)}")


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
    print(end="", flush=True)
    os._exit(status)  # skip the shutdown, because gloo threads may still hold tensors


def _hand_over_error_file():
    """Give the file of @record the name that torchrun reads, unless a full disk left it empty."""
    part = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    if part.endswith(PART):
        os.environ["TORCHELASTIC_ERROR_FILE"] = whole = part.removesuffix(PART)
        if os.path.exists(part) and os.path.getsize(part):
            os.replace(part, whole)


def _wait_if_peer_lost(error):
    """Wait, so that the launcher sees the first failure, reports that one, and ends us."""
    if LOST.search(_last_line(error)):
        time.sleep(5 if _without_torchrun() else 2)  # 5: until that process has printed its line


def _without_torchrun():
    """Whether mpirun, srun or the like started us. They end all ranks when the first one fails."""
    return "RANK" in os.environ and not TORCHRUN  # multigpu.py sets RANK late


def _last_line(error):
    return str(error).strip().rpartition("\n")[2]


def misfit(path, error):
    """What to print if the checkpoint at `path` causes `error`."""
    why = textwrap.shorten(f"{type(error).__name__}: {_last_line(error)}", 160)
    return f"{path} does not fit this run ({why}): {AWAY}"


def _line(error):
    """The exit status and the line for an exception; None if it needs a traceback."""
    text, last = str(error).strip(), _last_line(error)
    spawned = isinstance(error, mp.ProcessRaisedException)  # its text is the worker's traceback
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, UserError) or (spawned and last.startswith("guard.UserError: ")):
        return 2, last.removeprefix("guard.UserError: ")
    if "Unable to find address for: " in last:
        return 2, f"GLOO_SOCKET_IFNAME is {last.split()[-1]}, but no such interface has an address"
    if spawned and ", in init_process_group\n" in text and "BackendError" not in text:
        fix = "start each of them once, with the same address"
        return 1, f"cannot meet the other processes ({last}): {fix}"
    if "out of memory" in text:  # of a GPU
        told = [part for part in last.split(". ") if part.startswith(("Tried", "GPU", "Process"))]
        facts = "; ".join(told) or "even its driver or NCCL does not fit"
        fix = "lower --batch_size (of the GPT --micro_batch_size), or end what else uses it"
        return 2, f"the GPU is out of memory ({facts}): {fix} (see nvidia-smi)"
    if LOST.search(last):
        why = (last.partition("] ")[2] or last).partition(". ")[0]
        return 1, f"lost another process, whose message says why ({why})"
    if spawned or isinstance(error, mp.ProcessExitedException | dist.DistNetworkError):
        return 1, text  # which names the worker's error or signal, or the port that is taken
    # A checkpoint did not fit. SGD loads AdamW's state, but fails in its first step.
    frames = traceback.extract_tb(error.__traceback__)
    loading = any(frame.name == "load_state_dict" for frame in frames)
    in_optimizer = frames and os.path.join("torch", "optim", "") in frames[-1].filename
    if (loading or in_optimizer) and "memory" not in text and _path and os.path.exists(_path):
        return 2, misfit(_path, error)
    return None


@functools.cache  # each line once
def write(line):
    with contextlib.suppress(OSError):  # stderr is closed: train on
        os.write(2, f"{Path(sys.argv[0]).name}: {line}\n".encode(errors="backslashreplace"))


def _say_once(line):
    """Write `line` to stderr, unless another worker or an earlier attempt already has."""
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # RUN/attempt_N/LOCAL_RANK/error.json
    if TORCHRUN and error_file:
        said = f"said-{zlib.crc32(line.partition('(')[0].encode(errors='replace'))}"
        said = PERMANENT if AWAY in line else said  # no restart cures a bad checkpoint
        try:
            Path(error_file).parents[2].joinpath(said).touch(exist_ok=False)
        except OSError as error:
            if isinstance(error, FileExistsError):  # else better to print it twice than never
                return
    elif _without_torchrun() and os.environ["RANK"] != "0":
        time.sleep(3)  # if rank 0 prints it, the launcher ends us meanwhile
    write(line)
