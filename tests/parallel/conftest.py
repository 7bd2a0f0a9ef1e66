import pytest
import torch

from tests.mingpt.conftest import text  # noqa: F401  a fixture


@pytest.fixture
def sgd(monkeypatch):
    """Options of a training by plain SGD: AdamW would hide a factor."""
    monkeypatch.setattr(torch.optim, "AdamW", lambda groups, lr, **_: torch.optim.SGD(groups, lr))
    return {"learning_rate": 0.1, "min_learning_rate": 0.1}
