"""Count the memory of a training step of a small GPT, in bytes, and compute it by formulas.

    python docs/labs/memory.py          count, and compare with the formulas
    python docs/labs/memory.py large    what the formulas say of large models, in GB
    python docs/labs/memory.py time     how much longer a step takes with checkpointing
    python docs/labs/memory.py course   what a step holds while it runs, in MB
"""

import statistics
import sys
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).parents[2]))
from mingpt import trainer
from mingpt.config import Config
from mingpt.model import MODELS
from parallel import checkpoint_activations

VOCABULARY, TIME, BATCH = 96, 64, 4
LARGE = {  # layers, heads, width: GPT-2, GPT-3, and the depth and width of Llama 3 405B
    "124M": (12, 12, 768), "1.6B": (48, 25, 1600), "6.7B": (32, 32, 4096),
    "175B": (96, 96, 12288), "405B": (126, 128, 16384),
}  # fmt: skip


class Living(TorchDispatchMode):
    """Counts the bytes of all tensors that operations have made and that still live."""

    def __init__(self):
        super().__init__()
        self.sizes, self.now, self.course = {}, 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor.untyped_storage())
        self.course.append(self.now)
        return made

    def add(self, storage):
        if (key := storage._cdata) not in self.sizes:
            self.sizes[key] = storage.nbytes()
            self.now += storage.nbytes()
            weakref.finalize(storage, self.drop, key)

    def drop(self, key):
        self.now -= self.sizes.pop(key)


def made(script):
    """The model and optimizer of `script`, and a batch."""
    script.data = SimpleNamespace(load=lambda _: SimpleNamespace(vocab_size=VOCABULARY))  # no text
    _, model, optimizer = script.load_train_objs(Config(block_size=TIME, dropout=0.0))
    return model, optimizer, torch.randint(VOCABULARY, (BATCH, TIME))


def counted(script):
    """The bytes of the parts of a training step."""
    model, optimizer, tokens = made(script)
    weights = [*model.parameters()]
    with Living() as living:
        living.sizes |= {weight.untyped_storage()._cdata: 0 for weight in weights}
        loss = model(tokens, tokens)
        activations = living.now - loss.nbytes
    loss.backward()
    optimizer.step()
    state = [one for part in optimizer.state.values() for one in part.values() if one.dim()]
    groups = weights, [weight.grad for weight in weights], state
    return [sum(one.nbytes for one in group) for group in groups] + [activations]


def computed(layers, heads, width, vocabulary, length, batch, again=False):
    """The same by formulas, in fp32. `again`: a block keeps its input only."""
    weights = 12 * layers * width**2 + 13 * layers * width + (vocabulary + length + 2) * width
    block = width if again else 16 * width + heads + 4  # numbers per token
    kept = batch * length * (layers * block + 2 * width + 2 + vocabulary)
    padded = (vocabulary + -vocabulary % 64) * width  # lm_head's weight, copied
    indices = 8 * batch * length + 8 * length + 4  # tokens, positions, the weight of the loss
    return [4 * weights, 4 * weights, 8 * weights, 4 * (kept + padded) + indices]


def course(script):
    """The bytes after each operation of the second step: of `forward()`, and of `backward()`."""
    model, optimizer, tokens = made(script)
    with Living() as living:
        for weight in model.parameters():
            living.add(weight.untyped_storage())
        for _ in range(2):
            optimizer.zero_grad()
            begin = len(living.course)
            loss = model(tokens, tokens)
            middle = len(living.course)
            loss.backward()
            del loss
            end = len(living.course)
            optimizer.step()
    return living.course[begin:middle], living.course[middle:end]


def seconds(model, optimizer, tokens):
    begin = time.perf_counter()
    model(tokens, tokens).backward()
    optimizer.step()
    return time.perf_counter() - begin


PARTS = ("weights", "gradients", "state", "activations")
if sys.argv[1:] == ["large"]:
    print("GB     ", *(f"{name:>11}" for name in PARTS), "  with checkpoints")
    for name, shape in LARGE.items():
        plain, few = (computed(*shape, 50257, 2048, 1, again) for again in (False, True))
        _, heads, width = shape
        most = few[-1] + 4 * 2048 * (15 * width + heads + 4)  # one block, in backward
        print(f"{name:7}", *(f"{size / 1e9:11,.1f}" for size in plain), f"{most / 1e9:18,.1f}")
    sys.exit()
if sys.argv[1:] == ["time"]:
    both = made(trainer), made(checkpoint_activations)
    ratios = [seconds(*few) / seconds(*plain) for plain, few in [both] * 60]
    print(f"a step takes {statistics.median(ratios):.2f} times as long (median of 60 pairs)")
    sys.exit()
if sys.argv[1:] == ["course"]:
    for script in (trainer, checkpoint_activations):
        for name, sizes in zip(("forward", "backward"), course(script), strict=True):
            print(f"{script.__name__:31} {name:8} at most {max(sizes) / 1e6:.1f} MB")
            print(*(f"{size / 1e6:.2f}" for size in sizes[:: len(sizes) // 40]))
    sys.exit()
for script, again in ((trainer, False), (checkpoint_activations, True)):
    print(script.__name__)
    shape = (*MODELS[Config.model], VOCABULARY, TIME, BATCH)
    for name, *sizes in zip(PARTS, counted(script), computed(*shape, again), strict=True):
        print("  {:12} counted {:10,}  computed {:10,}".format(name, *sizes))
