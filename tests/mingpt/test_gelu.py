"""The activation is PyTorch's GELU by tanh, gradient included, however it is computed."""

import pytest
import torch
import torch.nn.functional as F

from mingpt.gelu import gelu


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_the_gelu_by_tanh(dtype):
    values = torch.linspace(-30, 30, 120_001, dtype=torch.float64).to(dtype)
    above = torch.randn(len(values), generator=torch.Generator().manual_seed(0)).to(dtype)
    ours, exact = values.clone().requires_grad_(), values.double().requires_grad_()
    y, reference = gelu(ours), F.gelu(exact, approximate="tanh")
    y.backward(above)
    reference.backward(above.double())
    limit = {"rtol": 1e-6, "atol": 4e-6} if dtype == torch.float32 else {}
    torch.testing.assert_close(y, reference.to(dtype), **limit)
    torch.testing.assert_close(ours.grad, exact.grad.to(dtype), **limit)


def test_it_leaves_what_it_is_given():
    values = torch.randn(100, requires_grad=True)
    before, above = values.detach().clone(), torch.ones(100)
    gelu(values).backward(above)
    assert torch.equal(values, before) and torch.equal(above, torch.ones(100))


def test_a_second_backward_is_refused():
    values = torch.randn(100, requires_grad=True)
    loss = gelu(values).sum()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
