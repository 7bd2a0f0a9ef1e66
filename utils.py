"""What every script of the series needs and no lesson teaches.

The data, the command line, the choice of device, the files and the messages. Process groups,
DDP, samplers, who saves and how to resume are the lessons: nothing of them stands here. It is one
file, so that whoever takes a script along takes this one and no more.
"""

import argparse
import gc
import hashlib
import itertools
import math
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import uuid
from pathlib import Path

import torch
import torch.multiprocessing as mp
from torch.utils.data import Dataset

NUM_SAMPLES = 2048
_global_batch = ""  # in words, once the command line has been read


class MyTrainDataset(Dataset):
    """A linear law with noise: `targets = features @ weights + noise`.

    2,048 samples of 20 features in [-1, 1]; one target each; the noise is uniform in ±0.3, so no
    model gets below a mean squared error of about 0.3² / 3 = 0.03. Drawn and summed as integers and
    divided once, which rounds alike on every machine: all ranks hold the same bits.
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


class Mistake(Exception):
    """Something the user can mend. Shown as one line, without a traceback."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Mistake(f"{message} (--help shows what there is)")


def parse_args(manual):
    """Read the command line of a script, and refuse what cannot work before any process starts.

    `manual` is the script's docstring. Its indented command is the documented way to start the
    script: where that names torchrun the script insists on torchrun, elsewhere it refuses it.

    Returns `total_epochs`, `save_every` (epochs), `batch_size` (samples per process) and
    `checkpoint_path`. Raises `Mistake`.
    """
    show_mistakes()
    parser = _Parser(description=manual, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("total_epochs", type=int, nargs="?", default=50, help="default: 50")
    parser.add_argument(
        "save_every", type=int, nargs="?", default=10, help="epochs between saves; default: 10"
    )
    parser.add_argument("--batch_size", type=int, default=32, help="per process; default: 32")
    path = Path(sys.argv[0]).stem + ".pt"
    parser.add_argument("--checkpoint_path", default=path, help=f"default: {path}")
    args = parser.parse_args()

    for name in ("total_epochs", "save_every", "batch_size"):
        if getattr(args, name) < 1:
            raise Mistake(f"{name} is {getattr(args, name)}, but must be at least 1")
    check_start(manual, args.checkpoint_path)
    world_size = int(os.environ.get("WORLD_SIZE", 1)) if "torchrun" in manual else 1
    _check_share(args.batch_size, world_size)
    global _global_batch
    _global_batch = f"{args.batch_size * world_size} samples a step"
    return args


def show_mistakes():
    """From now on a `Mistake` ends the program with its one line, said by one process only."""
    sys.excepthook = _excepthook
    # A shell's `&` has it ignored, but it is what ends mp.spawn's processes when their parent dies.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def check_start(manual, checkpoint_path):
    """Refuse a launcher that is not the one of `manual`, and a path that cannot be written.

    From then on a worker of torchrun ends when torchrun does, however that ended.
    """
    _check_folder(checkpoint_path)
    _check_launcher(manual)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _check_launcher(manual):
    lines = [line.strip().rstrip("\\") for line in manual.splitlines() if line.startswith("    ")]
    command = " ".join(" ".join(lines).split())
    if "torchrun" not in manual:
        if "TORCHELASTIC_RUN_ID" in os.environ:
            raise Mistake(f"not for torchrun, start it as documented: {command}")
        return
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise Mistake(f"no {name} in the environment, start it with torchrun: {command}")
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    _check_gpus(processes, "--nproc_per_node")
    if os.environ["RANK"] == os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        _announce(processes, f"--nproc_per_node={2 * processes} asks for more")


def _end_with(agent):
    """End this process when its parent has.

    A torchrun that is killed leaves its workers training as orphans: a job that is started again
    would train beside them, and write the same checkpoint.
    """
    if _is_orphan(agent):
        sys.stderr.write(f"{Path(sys.argv[0]).name}: torchrun is gone, so this worker ends\n")
        agent = None
    while os.getppid() == agent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)  # a save in progress leaves the old checkpoint whole


def _is_orphan(pid):
    """Whether an init has adopted us while torch was imported: then no ancestor is a Python.

    False where that cannot be told: on no Linux, in a namespace of our own.
    """
    while True:
        try:
            if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
                return False
            stat = Path(f"/proc/{pid}/stat").read_text()
        except PermissionError:
            return pid == 1
        except OSError:
            return pid != 0 and os.path.exists("/proc/self/exe")
        if pid == 1:
            return True
        pid = int(stat.rpartition(")")[2].split()[1])


def num_processes(args):
    """How many processes to start: one for each GPU, two on a CPU, or NPROC of the environment."""
    gpus = _num_gpus()
    nproc = os.environ.get("NPROC") or str(gpus or 2)
    if not (nproc.isdecimal() and int(nproc) >= 1):
        raise Mistake(f"NPROC is {nproc!r}, but must be a whole number of at least 1")
    processes = int(nproc)
    _check_gpus(processes, "NPROC")
    _check_share(args.batch_size, processes)
    _announce(processes, f"NPROC={2 * processes} in the environment asks for more")
    return processes


def _check_share(batch_size, processes):
    share = math.ceil(NUM_SAMPLES / processes)
    if batch_size > share:
        raise Mistake(
            f"--batch_size is {batch_size}, but of {NUM_SAMPLES} samples shared by {processes} "
            f"process{'es' * (processes > 1)} each gets {share}: ask for at most {share}"
        )


def _check_gpus(processes, setting):
    gpus = _num_gpus()
    if 0 < gpus < processes:
        raise Mistake(
            f"{processes} processes, but {gpus} GPU{'s' * (gpus > 1)}: set {setting}={gpus}, or "
            "CUDA_VISIBLE_DEVICES= (empty) to train on the CPU"
        )


def _accelerator():
    """The accelerator, if torch itself has collectives for it (MPS has none), else None."""
    if not torch.accelerator.is_available():
        return None
    accelerator = torch.accelerator.current_accelerator()
    return accelerator if accelerator.type in ("cuda", "xpu") else None


def _num_gpus():
    return torch.accelerator.device_count() if _accelerator() else 0


def _announce(processes, more=""):
    """Say in one line that it will be the CPU, why, and how to ask for more processes."""
    if _accelerator():
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
    count = "one CPU process" if processes == 1 else f"{processes} CPU processes over gloo"
    _print(f"{why}: {count}{more and f' ({more})'}")


def set_device(local_rank):
    """Make the GPU of this number the current one.

    Returns what `init_process_group` takes as `device_id`: the device, or None on a CPU.
    """
    if not _accelerator():
        return None
    torch.accelerator.set_device_index(local_rank)
    return torch.device(_accelerator().type, local_rank)


def device():
    """The device of this process: its current GPU, or the CPU."""
    if _accelerator():
        return torch.device(_accelerator().type, torch.accelerator.current_device_index())
    if mp.parent_process() is None and "LOCAL_RANK" not in os.environ:
        _announce(1)  # nobody has: this process was not started by a launcher
    return torch.device("cpu")


def report(epoch, totals, start):
    """Print the line of an epoch (counted from 0, printed from 1).

    `totals` is a tensor [summed loss, samples]; `start` the `time.perf_counter()` at the beginning.
    """
    loss, samples = totals.tolist()  # waits for the device, so the clock is read after the work
    speed = samples / (time.perf_counter() - start)
    _print(
        f"Epoch {epoch + 1:2} | loss {loss / samples:.5f} over {samples:.0f} samples"
        f" | {speed:,.0f} samples/s"
    )


def report_resume(done, total, path, unit="epoch"):
    """Say that training begins, or where it goes on, or that there is nothing left to do."""
    if done >= total:
        _print(
            f"{path} has run {done} {unit}s already and {total} were asked for: ask "
            "for more, or start afresh with another --checkpoint_path"
        )
    elif done > 0:
        # Of all processes: where a node is missing now, fewer than before.
        _print(f"Resuming after {unit} {done}" + (_global_batch and f", {_global_batch}"))
    elif _global_batch:
        _print(f"Starting, {_global_batch}")


def _print(line):
    # One write a line: torchrun's workers are unbuffered, and print() would write the end of the
    # line apart from its text, so that lines of two processes mix.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def save_checkpoint(checkpoint, path):
    """Write `checkpoint` as `write` does, and say so. Raises `Mistake` if the file system refuses.

    It must tell how far training is, as `epochs_run` or as `steps_run`.
    """
    path = os.path.realpath(path)  # through a link, not over it
    unit, count = _progress(checkpoint)
    try:
        write(checkpoint, path)
    except OSError as error:
        raise Mistake(
            f"cannot save {path} after {unit} {count}: {error.strerror or error}; what was saved "
            "before is intact: make room, or pass another --checkpoint_path"
        ) from None
    width = 2 if unit == "epoch" else 5
    _print(f"{unit.capitalize()} {count:{width}} | checkpoint saved to {os.path.relpath(path)}")


def write(content, path):
    """`torch.save`, so that `path` is at every moment the old file or the new one, whole.

    A SIGKILL in mid-save leaves a hidden file `.NAME.*.tmp` beside it, for the user to delete.
    Raises OSError.
    """
    temporary = _temporary(path)
    try:
        with open(temporary, "xb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())  # the data reach the disk before the name does
        os.replace(temporary, path)
        folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
        os.fsync(folder)  # and the name before anybody relies on it
        os.close(folder)
    except (OSError, RuntimeError) as error:  # torch wraps a failed write in a RuntimeError
        if os.path.exists(temporary):
            os.remove(temporary)
        cause = error.__context__ or error
        raise cause if isinstance(cause, OSError) else OSError(str(cause)) from None


def _progress(checkpoint):
    """What is counted, and how many have run: `("epoch", 10)` or `("step", 500)`."""
    unit = "step" if "steps_run" in checkpoint else "epoch"
    return unit, checkpoint[f"{unit}s_run"]


def _temporary(path):
    """A name beside `path` that no other process on any host has: folders may be shared."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.{uuid.uuid4().hex}.tmp")


def _check_folder(path):
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    advice = "pass another --checkpoint_path"
    if not os.path.isdir(folder):
        raise Mistake(f"no folder {folder} for the checkpoint: make it, or {advice}")
    if os.path.isdir(path):
        raise Mistake(f"--checkpoint_path {path} is a folder, but must name a file")
    try:
        probe = _temporary(path)
        open(probe, "xb").close()
        os.remove(probe)
    except OSError as error:
        raise Mistake(f"cannot write to {folder} ({error.strerror}): {advice}") from None


def read_checkpoint(path, model, optimizer):
    """Read the checkpoint at `path` into host memory; `{"epochs_run": 0}` where there is no file.

    Raises `Mistake` for a file that is damaged, or that `model` and `optimizer` did not write:
    to train from scratch instead would end in overwriting it.
    """
    if not os.path.lexists(path):
        return {"epochs_run": 0}
    checkpoint = _read(path)
    if _outline(checkpoint) != _outline(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    ):
        raise Mistake(f"{path} belongs to another model or optimizer: {AWAY}")
    return checkpoint


def set_aside(path):
    """Keep an earlier run's checkpoint under a free name, since this run will replace it.

    Raises `Mistake` for a file that is no checkpoint, or that cannot be copied.
    """
    if not os.path.lexists(path):
        return
    _read(path)
    root, extension = os.path.splitext(path)
    for number in itertools.count(1):
        kept = f"{root}.{number}{extension}"
        try:
            with open(path, "rb") as source, open(kept, "xb") as target:
                shutil.copyfileobj(source, target)
            break
        except FileExistsError:
            continue
        except OSError as error:
            Path(kept).unlink(missing_ok=True)
            raise Mistake(
                f"cannot keep {path} of an earlier run as {kept} ({error.strerror}): make room, or "
                "pass another --checkpoint_path"
            ) from None
    _print(f"{path} of an earlier run is kept as {kept}: this script starts afresh")


AWAY = "move it away to start afresh, or pass another --checkpoint_path"


def read(path, **options):
    """What `write` wrote, in host memory. Raises `Mistake` if there is nothing of the kind."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, **options)
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror}: {AWAY}") from None
    except Exception:  # torch.load fails in a dozen ways that have no base class in common
        raise Mistake(f"{path} is damaged, or no checkpoint at all: {AWAY}") from None


def _read(path):
    checkpoint = read(path)
    try:
        _outline(checkpoint)
        if checkpoint["epochs_run"] < 1:
            raise ValueError
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Mistake(
            f"{path} is not in the format of this series (model, optimizer, epochs_run): {AWAY}"
        ) from None
    return checkpoint


def _outline(checkpoint):
    """What must agree for a checkpoint to fit: shapes of weights, kind of optimizer."""
    shapes = {name: tensor.shape for name, tensor in checkpoint["model"].items()}
    groups = [
        (sorted(group), len(group["params"])) for group in checkpoint["optimizer"]["param_groups"]
    ]
    return shapes, groups


def _excepthook(kind, error, trace):
    """One line for what the user can mend or has done; the usual traceback for everything else."""
    while not _line(error) and error.__context__:
        error = error.__context__  # on a full disk @record fails too, and its error hides ours
    status, line = _line(error) or (1, None)
    if line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        _say_once(line)
    for child in mp.active_children():
        child.terminate()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without finalising the interpreter: after a failure, threads of gloo may still hold tensors.
    os._exit(status)


def unwind():
    """Let go of all that training held, DDP above all, so that the process group can end.

    If DDP is the last to hold the group, it waits for the group's threads while it holds Python's
    lock, which they need to end: a deadlock. Left until Python ends, they can take it down with
    "terminate called". A traceback keeps the frame of `main`, and that keeps DDP. Without one, a
    cycle may: torch._dynamo, which an optimizer's constructor imports, leaves one with the frames
    of all functions that are at work then; a compiled model is part of another.

    What is left is not looked at again, which would take Python most of a second at its end.

    Who has only lost its peer waits a little: the launcher then sees the process that failed first,
    reports that one, and ends the others.
    """
    error = sys.exception()
    if error is not None and _lost_peer(error):
        time.sleep(5 if _without_torchrun() else 2)  # 5: until that process has said it
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    gc.collect()
    gc.freeze()


def _without_torchrun():
    """Whether mpirun, srun or the like has started us, which end all when the first has failed."""
    return "RANK" in os.environ and "TORCHELASTIC_RUN_ID" not in os.environ


def _lost_peer(error):
    """What a collective says when the process at its other end is gone, or None."""
    last = str(error).strip().rpartition("\n")[2]
    if any(sign in last for sign in ("closed by peer", "reset by peer", "Broken pipe")):
        return last.partition("] ")[2].partition(". ")[0]
    return None


def _line(error):
    """The exit status and the line that stand for an exception; None: it deserves a traceback."""
    text = str(error).strip()
    last = text.rpartition("\n")[2]
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    if isinstance(error, Mistake):
        return 2, text
    if isinstance(error, mp.ProcessRaisedException) and last.startswith("utils.Mistake: "):
        return 2, last.removeprefix("utils.Mistake: ")
    if _lost_peer(error):
        return 1, f"lost another process, whose message says why ({_lost_peer(error)})"
    if isinstance(error, mp.ProcessRaisedException):
        return 1, text  # the traceback of the process; the one of this waiting parent says nothing
    if isinstance(error, mp.ProcessExitedException):
        return 1, text
    return None


def _say_once(line):
    """Write `line` to stderr, unless a worker or an attempt of this launcher has said it before."""
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")  # RUN/attempt_N/LOCAL_RANK/error.json
    if error_file:
        kind = line.partition("(")[0]
        said = Path(error_file).parents[2] / hashlib.sha256(kind.encode()).hexdigest()
        try:
            said.touch(exist_ok=False)
        except FileExistsError:
            return
        except OSError:
            pass  # better twice than never
    elif _without_torchrun() and os.environ["RANK"] != "0":
        time.sleep(3)  # if rank 0 says it too, its launcher ends us meanwhile
    sys.__stderr__.write(f"{Path(sys.argv[0]).name}: {line}\n")
    sys.__stderr__.flush()
