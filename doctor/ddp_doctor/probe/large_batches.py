"""Make runs comparable that divide the same batches among different numbers of processes.

DOCTOR_PARITY says how many times larger a batch is. Plain SGD takes the optimizer's place, because
Adam's steps hardly depend on the scale of a gradient.
"""

import os
import random

import torch
from _ddp_doctor import comparisons, optimizers, passes
from _ddp_doctor.devices import replacing, say
from torch.nn import functional
from torch.nn.modules.rnn import RNNBase
from torch.optim import Optimizer
from torch.utils.data import BatchSampler

TIMES = int(os.environ["DOCTOR_PARITY"])
RATE = 1e-3  # not the script's: it may have scaled that by the number of processes
DROPOUTS = ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d",
            "feature_alpha_dropout")  # fmt: skip


def watch():
    passes.ROWS = 1 << 20  # every sample of a batch
    torch.manual_seed(0)
    random.seed(0)
    for name in DROPOUTS:
        setattr(functional, name, _unchanged)
    replacing(functional, "scaled_dot_product_attention")(_attend)
    replacing(RNNBase, "__init__")(_without_dropout)
    replacing(torch.amp.autocast_mode.autocast, "__init__")(_without_autocast)
    replacing(BatchSampler, "__init__")(_larger)
    replacing(Optimizer, "__init__")(_with_sgd)
    comparisons.watch()


def _unchanged(input, p=0.5, training=True, inplace=False):
    if training and p:
        say("no dropout")
    return input


def _attend(attend, query, key, value, attn_mask=None, dropout_p=0.0, *rest, **options):
    if dropout_p:
        say("no dropout")
    return attend(query, key, value, attn_mask, 0.0, *rest, **options)


def _without_dropout(begin, self, *args, **kwargs):
    begin(self, *args, **kwargs)
    if self.dropout:
        say("no dropout")
        self.dropout = 0.0


def _without_autocast(begin, self, device_type, dtype=None, enabled=True, *args, **kwargs):
    if enabled:
        say("no autocast")
    begin(self, device_type, dtype, False, *args, **kwargs)


def _larger(begin, self, sampler, batch_size, *args, **kwargs):
    begin(self, sampler, batch_size * TIMES, *args, **kwargs)


def _with_sgd(begin, self, *args, **kwargs):
    begin(self, *args, **kwargs)
    if "DOCTOR_PERTURBED" in os.environ:
        comparisons.perturb(optimizers.parameters_of(self))
    if type(self).__name__ != "ZeroRedundancyOptimizer":  # which calls the one inside
        say(f"{type(self).__name__} → plain SGD")
        self.step = Optimizer.profile_hook_step(_step).__get__(self)


def _step(self, closure=None):
    """SGD without momentum."""
    with torch.enable_grad():
        loss = closure() if closure else None
    comparisons.note_gradients(self)
    with torch.no_grad():
        for parameter in optimizers.parameters_of(self):
            if parameter.grad is not None:
                parameter.add_(comparisons.dense(parameter.grad), alpha=-RATE)
    return loss
