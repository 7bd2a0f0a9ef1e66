"""What every script needs and no lesson teaches: data, command line, device, report, save and read.

Process groups, DDP, samplers, who saves and how to resume are the lessons' own lines. guard.py,
beside this file, turns mistakes into one-line messages. A script that you copy needs both.
"""

import argparse
import os
import socket
import sys
import time
import uuid
import zipfile
from pathlib import Path

import torch
from torch.utils.data import Dataset

import guard
from guard import AWAY, UserError

NUM_SAMPLES = 2048
# Several nodes may share a disk and replace each other's files. multigpu.py sets WORLD_SIZE later.
ONE_NODE = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
_saved = {}  # path: `_identity` of the file that this process saved there


class MyTrainDataset(Dataset):
    """2,048 samples of a linear law with noise: `targets = features @ weights + noise`.

    The noise is uniform in ±0.3, so its mean square is 0.3² / 3 = 0.03, about the least loss.
    All numbers are drawn and summed as integers and divided once: every machine rounds alike.
    """

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        features = torch.randint(-1000, 1001, (NUM_SAMPLES, 20), generator=generator)
        weights = torch.randint(-1000, 1001, (20, 1), generator=generator)
        noise = torch.randint(-300_000, 300_001, (NUM_SAMPLES, 1), generator=generator)
        self.features = features / 1000
        self.targets = (features @ weights + noise) / 1_000_000

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        return self.features[index], self.targets[index]


def parse_args(manual, resume=False, parents=()):
    """Parse a script's command line, and refuse bad options before any process starts.

    `manual` is the script's docstring. Its indented command is the documented way to start the
    script: if that is torchrun, every other way is refused. A script that does not `resume`
    replaces its own default checkpoint, but never a file that --checkpoint_path names. `parents`
    are argparse parsers of the script's own options.
    """
    guard.install_excepthook()
    form = argparse.RawDescriptionHelpFormatter
    parser = guard.Parser(description=manual, formatter_class=form, parents=parents)
    add = parser.add_argument
    add("total_epochs", type=int, nargs="?", default=50, help="default: 50")
    add("save_every", type=int, nargs="?", default=10, help="epochs between saves; default: 10")
    add("--batch_size", type=int, default=32, help="per process; default: 32")
    own = Path(sys.argv[0]).stem + ".pt"
    add("--checkpoint_path", help=f"default: {own}")
    args = parser.parse_args()

    for name in ("total_epochs", "save_every", "batch_size"):
        if getattr(args, name) < 1:
            raise UserError(f"{name} is {getattr(args, name)}, but must be at least 1")
    guard.check_launcher(manual, num_gpus())
    chosen, args.checkpoint_path = args.checkpoint_path, args.checkpoint_path or own
    guard.check_path(args.checkpoint_path, must_be_new=bool(chosen) and not resume)
    say_if_no_gpu()
    return args


def num_processes():
    """How many processes to start: one per GPU, two on a CPU, or NPROC of the environment."""
    gpus = num_gpus()
    nproc = os.environ.get("NPROC") or str(gpus or 2)
    if not nproc.isdecimal() or int(nproc) < 1:
        raise UserError(f"NPROC is {nproc!r}, but must be a whole number, at least 1")
    guard.check_gpus(int(nproc), gpus, "NPROC")
    show(f"Starting {nproc} process{'es' * (nproc != '1')} (the variable NPROC sets how many)")
    return int(nproc)


def free_port():
    """A port for rank 0 to listen on. No other program can get it while this one runs."""
    global _reserved
    _reserved = socket.socket()  # never listens, so rank 0's server can bind the port too
    _reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        _reserved.bind(("localhost", 0))
        socket.socket(type=socket.SOCK_DGRAM).connect(_reserved.getsockname())
    except OSError as error:
        fix = "add `127.0.0.1 localhost` to /etc/hosts, or `ip link set lo up`"
        raise UserError(f"localhost does not work here ({error.strerror}): {fix}") from None
    return _reserved.getsockname()[1]


def _accelerator():
    """The accelerator, if torch itself has collectives for it (MPS has none), else None."""
    found = torch.accelerator.is_available() and torch.accelerator.current_accelerator()
    return found if found and found.type in ("cuda", "xpu") else None


def num_gpus():
    return torch.accelerator.device_count() if _accelerator() else 0


def say_if_no_gpu():
    """Rank 0 prints, once per job, that training runs on the CPU, and why."""
    first = {os.environ.get(name, "0") for name in ("RANK", "TORCHELASTIC_RESTART_COUNT")} == {"0"}
    if _accelerator() or not first:
        return
    built_for, why = torch.version.cuda or torch.version.hip, "No GPU"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        why = "CUDA_VISIBLE_DEVICES is empty"
    elif torch.accelerator.is_available():
        why = f"No collectives on {torch.accelerator.current_accelerator()}"
    elif built_for and visible:
        why = f"CUDA_VISIBLE_DEVICES is {visible}, but torch finds no such GPU"
    elif built_for:
        why = f"This torch is built for CUDA/ROCm {built_for} but finds no GPU (check the driver)"
    show(f"{why}: training on the CPU")


def set_device(local_rank):
    """Make GPU `local_rank` current. Call it before `init_process_group`, with its `device_id`."""
    guard.prepare_for_group()
    if not _accelerator():
        return None
    torch.accelerator.set_device_index(local_rank)
    return device()


def device():
    """The device of this process: its current GPU, or the CPU."""
    if not _accelerator():
        return torch.device("cpu")
    return torch.device(_accelerator().type, torch.accelerator.current_device_index())


def report(epoch, totals, start, unit="epoch"):
    """Print a line about an epoch, counted from 0. `totals` is a tensor [summed loss, samples]."""
    loss, samples = totals.tolist()  # waits for the device, so the clock is read after the work
    speed = samples / (time.perf_counter() - start)
    line = f"{unit.capitalize()} {epoch + 1:2} | loss {loss / samples:.5f}"
    show(f"{line} over {samples:.0f} samples | {speed:,.0f} samples/s")


def report_resume(done, total, path, unit="epoch"):
    """Print after which epoch training resumes, or that nothing is left to do."""
    if done >= total:
        advice = "ask for more, or start afresh with another --checkpoint_path"
        show(f"{path} has run {done} {unit}s already, and you asked for {total}: {advice}")
    elif done > 0:
        show(f"Resuming after {unit} {done}")


def show(line):
    """Print a line, whole, if the output can still be written."""
    # One write: print() writes the newline separately, and the lines of two processes would mix.
    try:
        if sys.stdout:  # not closed, by `>&-`
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    except UnicodeEncodeError:
        show(line.encode("ascii", "backslashreplace").decode())
    except OSError:  # as after `| head -1`: train on, without output
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def save_checkpoint(checkpoint, path):
    """Write `checkpoint` as `write` does, and print a line. Raises `UserError` if that fails."""
    path = os.path.realpath(path)  # through a link, not over it
    unit, width = ("step", 5) if "steps_run" in checkpoint else ("epoch", 2)
    count, advice = checkpoint[f"{unit}s_run"], "make room, or pass another --checkpoint_path"
    try:
        if not all(weight.isfinite().all() for weight in checkpoint["model"].values()):
            advice = "lower the learning rate"
            raise OSError("the weights are not finite")
        if path in _saved and os.path.exists(path) and _identity(path) != _saved[path]:
            name, fix = os.path.relpath(path), "give each run its own --checkpoint_path"
            guard.write(f"another process has replaced {name} since this run saved it: {fix}")
        write(checkpoint, path)
        if ONE_NODE:
            _saved[path] = _identity(path)
    except OSError as error:
        why = f"{error.strerror or error}; what was saved before is intact"
        raise UserError(f"cannot save {path} after {unit} {count}: {why}: {advice}") from None
    show(f"{unit.capitalize()} {count:{width}} | checkpoint saved to {os.path.relpath(path)}")


def _identity(path):
    return os.stat(path).st_ino, os.stat(path).st_mtime_ns  # the system reuses inode numbers


def write(content, path):
    """`torch.save`, so that at every moment `path` is the old file or the new one, whole.

    Only a signal may leave a hidden file `.NAME.*.tmp` beside it, for you to delete.
    """
    folder, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")  # unique on every host
    try:
        with open(temporary, "xb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())  # the data must reach the disk before the new name does
        os.replace(temporary, path)
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)  # and the name, before we print that it is saved
        os.close(descriptor)
    except (OSError, RuntimeError) as error:  # torch wraps a failed write in RuntimeErrors
        cause = error
        while not isinstance(cause, OSError) and cause.__context__:
            cause = cause.__context__
        raise cause if isinstance(cause, OSError) else OSError(str(error)) from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def read_checkpoint(path, unit="epoch", parts=("model", "optimizer")):
    """Read the checkpoint at `path` into host memory; `{"epochs_run": 0}` if there is no file.

    Raises `UserError` for a file without these parts, because this run would overwrite it.
    """
    if not os.path.isfile(path):
        return {f"{unit}s_run": 0}
    if not is_whole(path):
        raise UserError(f"{path} is damaged, or no checkpoint at all: {AWAY}")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        for part in (f"{unit}s_run", *parts):
            if part not in checkpoint:
                raise KeyError(part)
    except Exception as error:  # of a dozen types with no common base class
        raise UserError(guard.misfit(path, error)) from None
    return checkpoint


def is_whole(path):
    """Whether the file has the bytes that `write` wrote: torch.load ignores the checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch reads nothing from a member that is marked as a folder, and says nothing.
            folders = any(member.external_attr for member in archive.infolist())
            return not folders and archive.testzip() is None
    except Exception:  # of a dozen types with no common base class
        return False
