"""mingpt/cpu.py changes only the speed."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mingpt import cpu


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 8, 16, 48), (3, 8, 48, 16), (1, 1, 7, 5), (5, 12, 65)])
def test_a_linear_layer_computes_the_same(shape, bias, monkeypatch):
    torch.manual_seed(0)
    *batch, inputs, outputs = shape
    layer, above = nn.Linear(inputs, outputs, bias), torch.randn(*batch, outputs)
    x = torch.randn(*batch, inputs, requires_grad=True)
    found = []
    for linear in (F.linear, cpu._linear):
        monkeypatch.setattr(F, "linear", linear)
        y = layer(x)
        found.append([y, *torch.autograd.grad(y, [x, *layer.parameters()], above)])
    assert "_Linear" in str(y.grad_fn)
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert "_Linear" not in str(layer(x).grad_fn) and layer(x).dtype == torch.bfloat16
