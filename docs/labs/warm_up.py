"""Print a script with a deeper model, a warm-up of the learning rate, or both.

    python docs/labs/warm_up.py multinode.py --deep > deep.py
    python docs/labs/warm_up.py multinode.py --epochs 5 > warm.py

--deep: two hidden layers, and a learning rate of 0.05.
--epochs 5: over five epochs the rate rises from 1/N of its value, for N processes.
"""

import argparse
from pathlib import Path

MODEL = """torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 1))"""
WARM_UP = """self.warm_up = torch.optim.lr_scheduler.LinearLR(
            optimizer, start_factor=1 / dist.get_world_size(),
            total_iters={epochs} * len(train_data))"""

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("script", type=Path)
parser.add_argument("--deep", action="store_true")
parser.add_argument("--epochs", type=int, default=0)
options = parser.parse_args()
text = options.script.read_text()


def replace(old, new):
    global text
    assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
    text = text.replace(old, new)


if options.deep:
    replace("torch.nn.Linear(20, 1)", MODEL)
    replace("1e-3", "0.05")
if options.epochs:
    old = "self.optimizer = optimizer\n"
    replace(old, f"{old}        {WARM_UP.format(epochs=options.epochs)}\n")
    old = "self.optimizer.step()\n"
    replace(old, f"{old}        self.warm_up.step()\n")
print(text, end="")
