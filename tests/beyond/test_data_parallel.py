"""Several devices in one process compute what one device does, from the same batch."""

import pytest
import torch
from torch.nn.parallel import DataParallel

import utils
from beyond.data_parallel import data_parallel


@pytest.mark.parametrize("samples", [1, 2, 3, 8])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_outputs_and_gradients_are_those_of_the_module(samples, devices):
    module, batch = torch.nn.Linear(4, 2), torch.randn(samples, 4)
    results = []
    for outputs in (module(batch), data_parallel(module, ["cpu"] * devices, batch)):
        weights = torch.arange(outputs.numel()).view_as(outputs)  # so that the order matters
        results.append([outputs, *torch.autograd.grad((outputs * weights).sum(), module.weight)])
    torch.testing.assert_close(*results)


@pytest.mark.skipif(utils.num_gpus() < 2, reason="needs two GPUs, for torch.nn.DataParallel")
def test_it_is_what_torchs_own_does():
    module, batch = torch.nn.Linear(20, 1).cuda(), torch.randn(7, 20).cuda()
    ours = data_parallel(module, [torch.device("cuda", n) for n in range(2)], batch)
    torch.testing.assert_close(ours, DataParallel(module, [0, 1])(batch))
