"""Compare what two trainings saved."""

import torch


def distance(one, other):
    """The largest difference between two weights of two checkpoint files."""
    weights, others = (torch.load(file)["model"] for file in (one, other))
    assert weights.keys() == others.keys()
    return max((weights[name] - others[name]).abs().max().item() for name in weights)


def last_save(process):
    assert (process.status, process.err) == (0, "")
    return process.saves[-1]
