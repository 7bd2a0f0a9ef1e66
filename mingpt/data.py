"""Text as batches of tokens: tokenised once, memory-mapped, drawn by the number of the step."""

import contextlib
import hashlib
import random
import sysconfig
import time
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset

import utils
from guard import UserError
from mingpt import tokens
from mingpt.once import run_once_per_node

PADDING = -100  # a target that does not count: cross_entropy ignores it


def load(args):
    """The training text as a `TokenDataset`, with the validation text as its `val`.

    One process per node tokenises the text, unless the cache has its tokens, which every rank
    memory-maps. Raises UserError on every rank, also if the nodes have different texts.
    """
    path = run_once_per_node(prepare, args.data, args.tokenizer, args.cache)
    keys = [None] * dist.get_world_size()
    dist.all_gather_object(keys, path.name)
    if set(keys) != {path.name}:
        other = next(rank for rank, key in enumerate(keys) if key != keys[0])
        versions = " (the standard libraries of two versions of Python differ)" * (not args.data)
        advice = "give all nodes the same file as --data"
        raise UserError(f"rank {other} has another text than rank 0: {advice}{versions}")
    text = torch.load(path, mmap=True, weights_only=True)
    numbers = text["tokens"].numpy()
    # Split the text, not its windows: windows overlap, so training would see validation tokens.
    count, size = len(numbers), args.block_size
    cut = count - count // 10
    if count < 20 or cut <= size:
        needs = f"20, and nine tenths of them, {cut}, must be more than block_size, {size}"
        advice = f"give a longer text, or ask for at most {cut - 1}"
        raise UserError(f"the text has {count} tokens, but must have {needs}: {advice}")
    val = numbers[cut : cut + args.val_tokens + 1 if args.val_tokens else None]
    about = {**text["tokenizer"], "key": path.stem}
    return TokenDataset(numbers[:cut], size, about, TokenDataset(val, size, about))


def prepare(source, tokenizer, cache):
    """Read and tokenise `source`; return the path of the tokens, a file named by its content.

    This holds several copies of the whole text in memory, once per node.
    """
    text = read(source)
    key = hashlib.sha256(f"{tokenizer}\n{text}".encode()).hexdigest()[:16]
    path = Path(cache, f"{key}.tokens")
    with contextlib.suppress(Exception):  # a damaged file may raise a dozen types
        whole = path.is_file() and utils.is_whole(path)
        if whole and "tokens" in torch.load(path, mmap=True, weights_only=True):
            return path
    kind = tokens.build(tokenizer, text)
    numbers = torch.from_numpy(kind.encode(text))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        utils.write({"tokens": numbers, "tokenizer": kind.about}, path)
    except OSError as error:
        why = f"{error.strerror}): make room, or pass another --cache"
        raise UserError(f"cannot keep the tokens in {path.parent} ({why}") from None
    return path


def read(source):
    """The text of a file or an http(s) URL; by default, of Python's standard library."""
    if not source:
        modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        return "\n".join(module.read_text(encoding="utf-8") for module in modules)
    try:
        if source.startswith(("http://", "https://")):
            utils.show(f"Downloading {source}")
            with urlopen(source, timeout=20) as answer:
                return answer.read().decode("utf-8-sig")
        return Path(source).read_bytes().decode("utf-8-sig")
    except (OSError, ValueError, HTTPException) as error:  # ValueError: not UTF-8, or no such URL
        cause = error.reason if isinstance(error, URLError) else error
        reason = getattr(cause, "strerror", None) or cause
        raise UserError(f"cannot read --data {source}: {reason}") from None


class TokenDataset(Dataset):
    """Windows of `size` tokens of `numbers`, side by side: `dataset[3]` is the fourth.

    An item is a pair of LongTensors [size]: source, and targets, which are one token ahead. Indexed
    with an array of n, it returns a batch, [n, size]. Targets past the end are PADDING.
    """

    def __init__(self, numbers, size, about, val=None):
        self.numbers, self.size, self.about, self.val = numbers, size, about, val
        self.vocab_size = len(tokens.restore(about))

    def __len__(self):
        return -(-(len(self.numbers) - 1) // self.size)

    def __getitem__(self, index):
        return self.at(index * self.size)

    def at(self, starts):
        """The windows that start at these tokens. They may overlap."""
        places = np.asarray(starts)[..., None] + np.arange(self.size + 1)
        found = self.numbers[np.minimum(places, len(self.numbers) - 1)].astype(np.int64)
        targets = np.where(places < len(self.numbers), found, PADDING)[..., 1:]
        return torch.from_numpy(found[..., :-1]), torch.from_numpy(targets)


class StepLoader:
    """This rank's micro-batches: `loader[step]` is a list of `accumulation` batches of `dataset`,
    on the device.

    The global batch is a function of (seed, step) alone; each rank takes its share. So the position
    in the data is one integer, for any number of processes. Only the ranks of `group` share a
    batch: by default, all.

    Worker processes would gain nothing: drawing a small model's batches takes 0.2 ms, half a
    percent of its step; fetching them takes 1.3 ms (tools/bench/results/data_workers.txt).
    """

    def __init__(self, dataset, args, group=None):
        self.dataset, self.seed, self.batch_size = dataset, args.seed, args.batch_size
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        self.group = group
        self.accumulation, self.device = args.accumulation(self.world_size), utils.device()
        self.seconds = 0.0  # that training has waited for data

    def __getitem__(self, step):
        start = time.perf_counter()
        # Python's own generator: seeding NumPy's takes 0.2 ms more, 1 % of a small model's step.
        generator = random.Random(self.seed << 64 | step)
        places = range(len(self.dataset.numbers) - self.dataset.size)
        starts = generator.choices(places, k=self.batch_size)
        mine = np.array(starts[self.rank :: self.world_size])
        batches = [
            to_device(self.dataset.at(some), self.device)
            for some in mine.reshape(self.accumulation, -1)
        ]
        self.seconds += time.perf_counter() - start
        return batches


def validation(train_data, args):
    """This rank's batches of the validation text, on the device. All ranks together have each token
    once, and each rank as many batches of one size: windows past the end, all padding, fill them.

    `train_data` is the loader of the training text.
    """
    text, rank, world_size = train_data.dataset.val, train_data.rank, train_data.world_size
    batch = args.batch_size // world_size // train_data.accumulation
    rounds = -(-len(text) // (batch * world_size))
    windows = np.arange(rounds * batch * world_size)
    for some in windows[rank::world_size].reshape(rounds, batch):
        yield to_device(text[some], train_data.device)


def to_device(batch, device):
    """A batch on the device. A GPU copies it from pinned memory while Python continues."""
    if device.type == "cpu":
        return batch
    return [part.pin_memory().to(device, non_blocking=True) for part in batch]
