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


class MyTrainDataset(Dataset):
    """A linear law with noise: `targets = features @ weights + noise`.

    2,048 samples of 20 features in [-1, 1], with one target each. The noise is uniform in ±0.3, so
    no model gets below a mean squared error of about 0.3² / 3 = 0.03. All numbers are drawn and
    summed as integers and divided once, so every machine rounds alike.
    """

    def __init__(self):
        generator = torch.Generator().manual_seed(0)

        def draw(limit, *shape):
            return torch.randint(-limit, limit + 1, shape, generator=generator)

        features, weights = draw(1000, NUM_SAMPLES, 20), draw(1000, 20, 1)
        noise = draw(300_000, NUM_SAMPLES, 1)
        self.features = features / 1000
        self.targets = (features @ weights + noise) / 1_000_000

    def __len__(self):
        return NUM_SAMPLES

    def __getitem__(self, index):
        return self.features[index], self.targets[index]


def parse_args(manual, resume=False):
    """Parse a script's command line, and refuse bad options before any process starts.

    `manual` is the script's docstring. Its indented command is the documented way to start the
    script: if that is torchrun, every other way is refused. A script that does not `resume`
    replaces its own default checkpoint, but never a file that --checkpoint_path names.

    Returns `total_epochs`, `save_every` (epochs), `batch_size` (samples per process) and
    `checkpoint_path`. Raises `UserError`.
    """
    guard.install_excepthook()
    parser = guard.Parser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("total_epochs", type=int, nargs="?", default=50, help="default: 50")
    parser.add_argument(
        "save_every", type=int, nargs="?", default=10, help="epochs between saves; default: 10"
    )
    parser.add_argument("--batch_size", type=int, default=32, help="per process; default: 32")
    own = Path(sys.argv[0]).stem + ".pt"
    parser.add_argument("--checkpoint_path", help=f"default: {own}")
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
    if not (nproc.isdecimal() and int(nproc) >= 1):
        raise UserError(f"NPROC is {nproc!r}, but must be a whole number of at least 1")
    guard.check_gpus(int(nproc), gpus, "NPROC")
    show(f"Starting {nproc} process{'es' * (nproc != '1')} (the variable NPROC sets how many)")
    return int(nproc)


def free_port():
    """A port for rank 0 to listen on. No other program can get it while this one runs."""
    global _reserved
    _reserved = socket.socket()  # never listens, so rank 0's server can bind the port too
    _reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _reserved.bind(("localhost", 0))
    socket.socket(type=socket.SOCK_DGRAM).connect(_reserved.getsockname())  # fails if lo is down
    return _reserved.getsockname()[1]


def _accelerator():
    """The accelerator, if torch itself has collectives for it (MPS has none), else None."""
    if not torch.accelerator.is_available():
        return None
    accelerator = torch.accelerator.current_accelerator()
    return accelerator if accelerator.type in ("cuda", "xpu") else None


def num_gpus():
    return torch.accelerator.device_count() if _accelerator() else 0


def say_if_no_gpu():
    """Rank 0 prints, once per job, that training runs on the CPU, and why."""
    if _accelerator() or not guard.is_first():
        return
    built_for = torch.version.cuda or torch.version.hip
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        why = "CUDA_VISIBLE_DEVICES is empty"
    elif torch.accelerator.is_available():
        why = f"No collectives on {torch.accelerator.current_accelerator()}"
    elif built_for:
        why = f"This torch is built for CUDA/ROCm {built_for} but finds no GPU (check the driver)"
    else:
        why = "No GPU"
    show(f"{why}: training on the CPU")


def set_device(local_rank):
    """Make GPU number `local_rank` the current one. Call it before `init_process_group`.

    Returns the `device_id` to pass to that: the device, or None on a CPU.
    """
    guard.prepare_for_group()
    if not _accelerator():
        return None
    torch.accelerator.set_device_index(local_rank)
    return torch.device(_accelerator().type, local_rank)


def device():
    """The device of this process: its current GPU, or the CPU."""
    if not _accelerator():
        return torch.device("cpu")
    return torch.device(_accelerator().type, torch.accelerator.current_device_index())


def report(epoch, totals, start, unit="epoch"):
    """Print one line per epoch, or per other `unit` (counted from 0, printed from 1).

    `totals` is a tensor [summed loss, samples]; `start` the `time.perf_counter()` at the beginning.
    """
    loss, samples = totals.tolist()  # waits for the device, so the clock is read after the work
    speed = samples / (time.perf_counter() - start)
    show(
        f"{unit.capitalize()} {epoch + 1:2} | loss {loss / samples:.5f} over {samples:.0f} samples"
        f" | {speed:,.0f} samples/s"
    )


def report_resume(done, total, path, unit="epoch"):
    """Print after which epoch training resumes, or that nothing is left to do."""
    if done >= total:
        show(
            f"{path} has run {done} {unit}s already, and you asked for {total}: ask for more, or "
            "start afresh with another --checkpoint_path"
        )
    elif done > 0:
        show(f"Resuming after {unit} {done}")


def show(line):
    """Print a line, whole, if the output can still be written."""
    # One write per line: print() writes the newline separately, and torchrun's workers do not
    # buffer, so the lines of two processes would mix.
    if sys.stdout is None:  # closed, by `>&-`
        return
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except OSError:  # as after `| head -1`: train on, without output
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def save_checkpoint(checkpoint, path):
    """Write `checkpoint` as `write` does, and print a line. Raises `UserError` if the disk refuses.

    `checkpoint` must contain how far training is, as `epochs_run` or as `steps_run`.
    """
    path = os.path.realpath(path)  # through a link, not over it
    unit = "step" if "steps_run" in checkpoint else "epoch"
    count = checkpoint[f"{unit}s_run"]
    if not guard.are_finite(checkpoint["model"]):
        raise UserError(
            f"the weights are not finite after {unit} {count}: not saved, what was saved before is "
            "intact; lower the learning rate"
        )
    try:
        write(checkpoint, path)
    except OSError as error:
        raise UserError(
            f"cannot save {path} after {unit} {count}: {error.strerror or error}; what was saved "
            "before is intact: make room, or pass another --checkpoint_path"
        ) from None
    width = 2 if unit == "epoch" else 5
    show(f"{unit.capitalize()} {count:{width}} | checkpoint saved to {os.path.relpath(path)}")


def write(content, path):
    """`torch.save`, so that at every moment `path` is the old file or the new one, whole.

    Only SIGKILL and SIGTERM during the save leave a hidden file `.NAME.*.tmp` beside it, for you
    to delete. Raises OSError.
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


def read_checkpoint(path, unit="epoch"):
    """Read the checkpoint at `path` into host memory; `{"epochs_run": 0}` if there is no file.

    Raises `UserError` for any other file, because starting afresh would overwrite it.
    """
    if not os.path.lexists(path):
        return {f"{unit}s_run": 0}
    checkpoint = read(path)
    guard.check_checkpoint(checkpoint, path, model=dict, optimizer=dict, **{f"{unit}s_run": int})
    return checkpoint


def read(path, **options):
    """What `write` wrote, in host memory. Raises `UserError` if it cannot be read."""
    try:
        if not options.get("mmap"):  # then another process reads the weights, and checks them
            check_sums(path)
        return torch.load(path, map_location="cpu", weights_only=True, **options)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}: {AWAY}") from None
    except Exception:  # torch.load raises a dozen types with no common base class
        raise UserError(f"{path} is damaged, or no checkpoint at all: {AWAY}") from None


def check_sums(path):
    """Raise an exception if a byte has changed since `write`. torch.load ignores the checksums."""
    with zipfile.ZipFile(path) as archive:
        if damaged := archive.testzip():
            raise zipfile.BadZipFile(damaged)
