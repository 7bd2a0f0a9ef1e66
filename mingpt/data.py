"""Text as batches of tokens: read and tokenised once, memory-mapped, drawn by step."""

import hashlib
import itertools
import os
import random
import sysconfig
from contextlib import suppress
from pathlib import Path

import fsspec
import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset

from guard import UserError
from mingpt import tokens
from mingpt.once import run_on_main
from utils import write

PADDING = -100  # a target that does not count: cross_entropy ignores it


def load(args):
    """The training text as `Windows`, with the validation text as its `val`.

    It is tokenised by one process of each node, unless its cache has it, and memory-mapped. Raises
    UserError on every rank, also if the nodes have different texts.
    """
    path = run_on_main(prepare, args.data, args.tokenizer, args.cache)
    keys = [None] * dist.get_world_size()
    dist.all_gather_object(keys, path.name)
    if set(keys) != {path.name}:
        other = next(rank for rank, key in enumerate(keys) if key != keys[0])
        raise UserError(
            f"rank {other} has another text than rank 0: give all nodes the same file as --data"
            + " (the standard libraries of two versions of Python differ)" * (not args.data)
        )
    try:
        text = torch.load(path, mmap=True, weights_only=True)
        numbers = text["tokens"].numpy()
    except Exception:  # torch.load fails in a dozen ways that have no base class in common
        raise UserError(f"{path} is damaged: delete it, and it is made anew") from None
    # The text is split, not its windows: those overlap, and would tell what they are asked.
    cut = _cut(len(numbers), args.block_size)
    val = numbers[cut : cut + args.val_tokens + 1 if args.val_tokens else None]
    about = {**text["tokenizer"], "key": path.stem}
    return Windows(numbers[:cut], args.block_size, about, Windows(val, args.block_size, about))


def check(args):
    """Raise UserError for a local text that is too short, before any process waits for another.

    Of a longer file only the size is looked up, or each process would read it: 8 bytes per token
    are enough characters, and almost always enough byte pairs. `load` checks again.
    """
    if os.path.isfile(args.data) and os.path.getsize(args.data) < 8 * (args.block_size + 20):
        text = read(args.data)
        _cut(len(tokens.build(args.tokenizer, text).encode(text)), args.block_size)


def _cut(count, block_size):
    """Where validation begins in a text of `count` tokens: its last tenth. Raises UserError."""
    cut = count - count // 10
    if count < 20:
        raise UserError(f"the text has {count} tokens, but must have 20: a tenth validates")
    if cut <= block_size:
        raise UserError(
            f"the text has {count} tokens, and nine tenths of them, {cut}, are to train on, "
            f"but block_size is {block_size}: give a longer text, or ask for at most {cut - 1}"
        )
    return cut


def prepare(source, tokenizer, cache):
    """Read `source`, tokenise it and return the path of the result, a file named by its content.

    The text is read whole: once, that takes many times its size in memory. While a URL gives
    nothing, what it gave last time will do. Raises UserError.
    """
    last = Path(cache, f"{_key(tokenizer, source)}.last") if "://" in source else None
    try:
        text = read(source)
    except OutOfReach as error:
        if not (path := last and _known(last)):
            raise
        print(f"{error}: going on with what it gave last time, {path}", flush=True)
        return path
    path = Path(cache, f"{_key(tokenizer, text)}.tokens")
    if not path.exists():
        kind = tokens.build(tokenizer, text)
        numbers = torch.from_numpy(kind.encode(text))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write({"tokens": numbers, "tokenizer": kind.about}, path)
        except OSError as error:
            raise UserError(
                f"cannot keep the tokens in {path.parent} ({error.strerror or error}): make room, "
                "or pass another --cache"
            ) from None
    if last:
        with suppress(OSError):  # the cache may be read-only, and this is for bad days only
            last.write_text(path.name)
    return path


def _key(tokenizer, text):
    return hashlib.sha256(f"{tokenizer}\n{text}".encode()).hexdigest()[:16]


def _known(last):
    """The tokens whose name the file `last` tells, or None."""
    with suppress(OSError, ValueError):
        path = last.with_name(last.read_text())
        return path if path.is_file() else None


class OutOfReach(UserError):
    """The text cannot be read now."""


def read(source):
    """The text at a path or URL; by default, the standard library's own. Raises UserError."""
    if not source:
        modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        return "\n".join(module.read_text(encoding="utf-8") for module in modules)
    try:
        with fsspec.open(source, "rb") as file:
            return file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 at byte {error.start}"
    except ImportError as error:  # fsspec speaks many protocols, by packages of others
        reason = str(error)
    except Exception as error:  # each protocol of fsspec has exceptions of its own
        reason = _reason(error, source)
        raise OutOfReach(f"cannot read --data {source}: {reason}") from None
    raise UserError(f"cannot read --data {source}: {reason}")


def _reason(error, source):
    """What lies behind an exception of fsspec, which may say no more than the source itself."""
    while error.__cause__ and str(error) in ("", source):
        error = error.__cause__
    said = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    if said not in ("", source):
        return said
    return "it is not there" if isinstance(error, FileNotFoundError) else type(error).__name__


class Windows(Dataset):
    """Windows of `size` tokens, addressed by where they start in `numbers`.

    `windows[starts]`, of an array, is a batch: source and targets, LongTensors [len(starts), size],
    the targets one token ahead. What would lie past the end is PADDING.
    """

    def __init__(self, numbers, size, about, val=None):
        self.numbers, self.size, self.about, self.val = numbers, size, about, val
        self.vocab_size = len(tokens.restore(about))

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, starts):
        places = starts[:, None] + np.arange(self.size + 1)
        found = self.numbers[np.minimum(places, len(self) - 1)].astype(np.int64)
        targets = np.where(places[:, 1:] < len(self), found[:, 1:], PADDING)
        return torch.from_numpy(found[:, :-1]), torch.from_numpy(targets)


class StepSampler:
    """Where the windows of this rank's micro-batches start, without end, from `set_step` on.

    What a step learns from is a function of (seed, step) alone: drawn for the global batch, then
    shared out. So the position in the data is one integer, at any number of processes.
    """

    def __init__(self, dataset, args):
        self.places = len(dataset) - dataset.size
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.batch_size, self.seed, self.step = args.batch_size, args.seed, 0
        self.accumulation = args.accumulation(self.world_size)

    def set_step(self, step):
        self.step = step

    def __iter__(self):
        for step in itertools.count(self.step):
            # Python's own: to seed NumPy's takes 0.2 ms more, 1 % of a small model's step.
            generator = random.Random(self.seed << 64 | step)
            starts = generator.choices(range(self.places), k=self.batch_size)
            mine = np.array(starts[self.rank :: self.world_size])
            yield from mine.reshape(self.accumulation, -1)


def validation(train_data, args):
    """This rank's batches of the validation text; all ranks together have every token once.

    `train_data` is the loader of the training text. All ranks have as many batches, all of one
    size: windows past the end, all padding, fill them up.
    """
    text, rank, world_size = train_data.dataset.val, dist.get_rank(), dist.get_world_size()
    batch = args.batch_size // world_size // args.accumulation(world_size)
    windows = -(-(len(text) - 1) // text.size)
    rounds = -(-windows // (batch * world_size))
    starts = np.arange(rounds * batch * world_size) * text.size
    for some in starts[rank::world_size].reshape(rounds, batch):
        yield text[some]


def to_device(batch, device):
    """A batch of `Windows` on the device. From pinned memory a GPU fetches it while we go on."""
    if device.type == "cpu":
        return batch
    return [part.pin_memory().to(device, non_blocking=True) for part in batch]
