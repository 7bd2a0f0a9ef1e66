"""Print the largest difference between each checkpoint and the first one.

python docs/labs/distance.py single.pt two.pt
"""

import sys

import torch


def moment(state):
    """The momentum of SGD, or the first moment of Adam."""
    return state["momentum_buffer" if "momentum_buffer" in state else "exp_avg"]


def tensors(file):
    checkpoint = torch.load(file)
    weights = torch.cat([w.flatten() for w in checkpoint["model"].values()])
    momenta = checkpoint["optimizer"]
    if isinstance(momenta, torch.Tensor):  # of zero_by_hand.py: of all weights
        return weights, momenta
    momenta = momenta["state"]
    return weights, torch.cat([moment(momenta[k]).flatten() for k in sorted(momenta)])


first, *others = sys.argv[1:]
for file in others:
    weights, momenta = (
        (a - b).abs().max().item() for a, b in zip(tensors(first), tensors(file), strict=True)
    )
    print(f"{file} from {first}: weights {weights:.1e}, momenta {momenta:.1e}")
