"""What FSDP sends in a step of two micro-batches, by the options of `fully_shard`, and when.

    python docs/labs/fsdp_messages.py
"""

import functools
import os
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

sys.path.insert(0, str(Path(__file__).parents[2]))
from docs.labs.fake_ranks import OPERATIONS, Collectives
from mingpt.config import Config
from parallel import fsdp

HALVES = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
FP32_SUMS = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
SETTINGS = {
    "as in the lesson": {},
    "param_dtype=bfloat16": {"mp_policy": HALVES},
    "and reduce_dtype=float32": {"mp_policy": FP32_SUMS},
    "reshard_after_forward=False": {"reshard_after_forward": False},
}


def count(options):
    """Of rank 0 among eight; the others do not exist."""
    os.environ |= {"LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "0"}
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    fsdp.data = SimpleNamespace(load=lambda _: SimpleNamespace(vocab_size=128))  # no text
    fsdp.fully_shard = functools.partial(fully_shard, **options)
    _, model, _ = fsdp.load_train_objs(Config(model="gpt-nano", block_size=16, dropout=0.0))
    tokens = torch.zeros(2, 16, dtype=torch.long)
    with Collectives() as seen:
        for number, block in enumerate(model.transformer.h):
            begins = functools.partial(_note, seen.order, f"block {number}")
            block.ln_1.register_forward_pre_hook(begins)
            block.mlp.register_full_backward_pre_hook(begins)
        for is_last in (False, True):
            model.set_requires_gradient_sync(is_last)
            seen.order[:] = ["forward: "]
            loss = model(tokens, tokens)
            seen.order.append("\nbackward:")
            loss.backward()
    dist.destroy_process_group()
    return seen


def _note(order, what, *_):
    order.append(what)


def main():
    warnings.simplefilter("ignore")
    for name, options in SETTINGS.items():
        seen = count(options)
        told = [f"{seen.times[one]} {one}s of {seen.bytes[one]:,} bytes" for one in OPERATIONS]
        print(f"{name:28} {', '.join(told)}")
    print("\nThe last micro-batch, as in the lesson\n" + " ".join(count({}).order))


if __name__ == "__main__":
    main()
