"""Several devices in one process train as one device does, from the same batch."""

import pytest
import torch
from torch.nn.parallel import DataParallel

import utils
from beyond.data_parallel import data_parallel
from tests.beyond.checkpoints import distance, last_save


def test_the_weights_are_those_of_one_device_with_the_same_batch(trained):
    short = (10, 10, "--batch_size", 64)
    one, other = (trained(name, *short, nproc=1) for name in ("data_parallel", "single_gpu"))
    assert distance(last_save(one), last_save(other)) < 1e-6


@pytest.mark.parametrize("samples", [1, 2, 3, 8])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_outputs_and_gradients_are_those_of_the_module(samples, devices):
    module, batch = torch.nn.Linear(4, 2), torch.randn(samples, 4)
    results = []
    for outputs in (module(batch), data_parallel(module, ["cpu"] * devices, batch)):
        weights = torch.arange(outputs.numel()).view_as(outputs)  # so that the order matters
        results.append([outputs, *torch.autograd.grad((outputs * weights).sum(), module.weight)])
    torch.testing.assert_close(*results)


def test_without_gpus_torchs_own_calls_the_module_once():
    calls, module = [], torch.nn.Linear(4, 2)
    module.register_forward_hook(lambda *_: calls.append(1))
    DataParallel(module, ["cpu", "cpu"] if utils.num_gpus() == 0 else None)(torch.randn(8, 4))
    assert len(calls) == max(1, utils.num_gpus())


@pytest.mark.skipif(utils.num_gpus() < 2, reason="needs two GPUs, for torch.nn.DataParallel")
def test_it_is_what_torchs_own_does():
    module, batch = torch.nn.Linear(20, 1).cuda(), torch.randn(7, 20).cuda()
    ours = data_parallel(module, [torch.device("cuda", n) for n in range(2)], batch)
    torch.testing.assert_close(ours, DataParallel(module, [0, 1])(batch))
