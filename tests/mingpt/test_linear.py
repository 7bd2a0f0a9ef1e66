"""Linear layers by oneDNN are nn.Linear's function, gradients included, and are used."""

import pytest
import torch
from torch import nn

from guard import UserError
from mingpt.linear import Linear, mkl_may_be_slow
from mingpt.main import ready

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


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 8, 16, 48), (3, 8, 48, 16), (1, 1, 7, 5), (5, 12, 65)])
def test_the_function_and_its_gradients_are_those_of_a_linear_layer(shape, bias, monkeypatch):
    monkeypatch.setattr(Linear, "onednn", True)
    for ours, plain in zip(*both(shape, bias), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)
        assert ours.is_contiguous()


@needs_onednn
def test_on_a_cpu_in_single_precision_it_is_onednn_that_computes_if_it_shall(monkeypatch):
    def used(x, layer):
        with torch.profiler.profile() as profile:
            layer(x).sum().backward()
        return sum(event.name == "mkldnn::_linear_pointwise" for event in profile.events())

    layer, x = Linear(8, 16), torch.randn(4, 8, requires_grad=True)
    monkeypatch.setattr(Linear, "onednn", True)
    assert used(x, layer) == 3  # forward, and for the gradients of x and the weight
    assert used(x.double(), layer.double()) == 0
    monkeypatch.setattr(Linear, "onednn", False)
    assert used(x, layer.float()) == 0


@pytest.mark.parametrize(
    "name, mkl, slow",
    [("AMD EPYC", True, True), ("Intel Xeon", True, False), ("Apple M4", False, False)],
)
def test_mkl_may_be_slow_on_processors_that_are_not_intels(name, mkl, slow, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name}, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert mkl_may_be_slow() is slow


def test_mkl_is_not_called_slow_where_torch_cannot_tell_the_processor(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert not mkl_may_be_slow()


@pytest.mark.parametrize("products, used", [("torch", False), ("onednn", True), ("auto", None)])
def test_the_command_line_decides(products, used, monkeypatch, config):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    for before in (False, True):
        monkeypatch.setattr(Linear, "onednn", before)
        ready(config(products=products))
        assert Linear.onednn is (before if used is None else used)
    if used:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
        with pytest.raises(UserError, match="no oneDNN"):
            ready(config(products=products))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_still_chooses_the_precision(dtype):
    layer, x = Linear(8, 16), torch.randn(4, 8)
    with torch.autocast("cpu", dtype):
        assert layer(x).dtype == dtype
