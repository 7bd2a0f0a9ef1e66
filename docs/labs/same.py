"""Compare two checkpoints bit for bit.

python docs/labs/same.py undisturbed.pt multigpu_torchrun.pt
"""

import sys

import torch


def leaves(value, name=""):
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from leaves(item, f"{name}[{number}]")
    else:
        yield name, value


one, other = (dict(leaves(torch.load(file))) for file in sys.argv[1:])
same = one.keys() == other.keys()
settings = 0
for name in sorted(one.keys() & other.keys()):
    if isinstance(one[name], torch.Tensor):
        equal = torch.equal(one[name], other[name])
        note = f"{one[name].numel()} numbers"
    else:
        equal = one[name] == other[name]
        note = f"{one[name]} and {other[name]}"
        settings += equal
    same = same and equal
    if not equal or isinstance(one[name], torch.Tensor):
        print(f"{name:34} {'equal' if equal else 'DIFFERENT'}, {note}")
print(f"{'epochs_run and settings':34} equal, {settings} of them")
print("equal, bit for bit" if same else "not equal")
sys.exit(not same)
