"""A mixture of experts, in place of a GPT's MLP: each token is computed by some of many."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Experts(nn.Module):
    """`count` experts, each as wide as `mlp`, of which each token has the `chosen` best.

    Maps activations [batch, time, n_embd] to as many. Its weights are drawn from `generator`.
    """

    def __init__(self, mlp, count, chosen, generator):
        super().__init__()
        (units, width), self.dropout = mlp.c_fc.weight.shape, mlp.dropout
        self.count, self.chosen = count, chosen
        shapes = (width, count), (count, width, units), (count, units, width)
        self.router, self.first, self.second = (
            nn.Parameter(0.02 * torch.randn(shape, generator=generator)) for shape in shapes
        )

    def forward(self, x):
        tokens = x.flatten(0, 1)
        shares = (tokens @ self.router).softmax(-1)  # [token, expert]
        weights, experts = shares.topk(self.chosen)
        order = experts.flatten().argsort(stable=True)  # of (token, expert) pairs: by expert
        counts = experts.flatten().bincount(minlength=self.count)
        self.balance = self.count * self.busy(counts) @ shares.mean(0)
        rows = self.compute(tokens[order // self.chosen], counts, self.first, self.second)
        rows = rows[order.argsort()].unflatten(0, (-1, self.chosen))
        x = (weights.unsqueeze(-1) * rows).sum(1).view_as(x)
        return F.dropout(x, self.dropout, self.training)

    def busy(self, counts):
        """The share of the tokens that each expert gets, from their numbers, `counts`."""
        return counts / counts.sum()

    def compute(self, rows, counts, firsts, seconds):
        """The outputs of experts: the first `counts[0]` rows are of expert 0, and so on."""
        parts = zip(rows.split(counts.tolist()), firsts, seconds, strict=True)
        return torch.cat([
            F.gelu(part @ first, approximate="tanh") @ second for part, first, second in parts
        ])  # fmt: skip
