"""Count what each rank keeps and sends in a step of a GPT whose layers are split.

    torchrun --standalone --nproc_per_node=4 -m docs.labs.split_activations MODULE...
"""

import importlib
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor.debug import CommDebugMode

from mingpt.config import Config

VOCABULARY, TIME, BATCH = 96, 64, 4


def local(tensor):
    return getattr(tensor, "_local_tensor", tensor)


def step(script):
    script.data = SimpleNamespace(load=lambda _: SimpleNamespace(vocab_size=VOCABULARY))  # no text
    args = Config(model="gpt-micro", block_size=TIME, dropout=0.0)
    _, model, _ = script.load_train_objs(args)
    tokens = torch.randint(VOCABULARY, (BATCH, TIME))
    weights = [local(weight) for weight in model.parameters()]
    own, kept = {weight.untyped_storage()._cdata for weight in weights}, {}

    def keep(tensor):
        storage = local(tensor).untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with CommDebugMode() as messages:
        with saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model(tokens, tokens)
        loss.backward()
    activations = sum(one.nbytes() for key, one in kept.items() if key not in own) // 4
    sent = {str(name).split(".")[-1]: n for name, n in messages.get_comm_counts().items()}
    return sum(weight.numel() for weight in weights), activations, sent


def main(modules):
    dist.init_process_group("gloo")
    for module in modules:
        weights, activations, sent = step(importlib.import_module(module))
        if dist.get_rank() == 0:
            told = ", ".join(f"{n} {name}" for name, n in sorted(sent.items())) or "nothing"
            print(f"{module:24} {weights:7,} weights {activations:9,} activations | {told}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
