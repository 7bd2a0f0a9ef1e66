"""Linear layers by oneDNN are nn.Linear's function, gradients included, and are used."""

import pytest
import torch
from torch import nn

from mingpt.linear import Linear

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this build of torch has no oneDNN"
)


def both(shape, bias=True):
    """The output of Linear and nn.Linear for the same weights, and the gradients of all inputs."""
    torch.manual_seed(0)
    *batch, wide, out = shape
    ours, plain = Linear(wide, out, bias=bias), nn.Linear(wide, out, bias=bias)
    plain.load_state_dict(ours.state_dict())
    start, above = torch.randn(*batch, wide), torch.randn(*batch, out)
    found = []
    for layer in (ours, plain):
        x = start.clone().requires_grad_()
        y = layer(x)
        y.backward(above)
        found.append([y, x.grad, *(parameter.grad for parameter in layer.parameters())])
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 8, 16, 48), (3, 8, 48, 16), (1, 1, 7, 5), (5, 12, 65)])
def test_the_function_and_its_gradients_are_those_of_a_linear_layer(shape, bias):
    for ours, plain in zip(*both(shape, bias), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)
        assert ours.is_contiguous()


@needs_onednn
def test_on_a_cpu_in_single_precision_it_is_onednn_that_computes():
    def used(x, layer):
        with torch.profiler.profile() as profile:
            layer(x).sum().backward()
        return sum(event.name == "mkldnn::_linear_pointwise" for event in profile.events())

    layer, x = Linear(8, 16), torch.randn(4, 8, requires_grad=True)
    assert used(x, layer) == 3  # forward, and for the gradients of x and the weight
    torch.backends.mkldnn.enabled = False
    try:
        assert used(x, layer) == 0
    finally:
        torch.backends.mkldnn.enabled = True
    assert used(x.double(), layer.double()) == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_still_chooses_the_precision(dtype):
    layer, x = Linear(8, 16), torch.randn(4, 8)
    with torch.autocast("cpu", dtype):
        assert layer(x).dtype == dtype
