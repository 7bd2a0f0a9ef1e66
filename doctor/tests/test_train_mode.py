"""Evaluations with active dropout or batch statistics, in scripts of several kinds."""

import pytest

from diagnosing import python
from right_scripts import BEGIN


@pytest.mark.soak
@pytest.mark.parametrize(
    ("passes", "times"),
    [("[model(x) for x in data.tensors[0].split(8)]", ""),  # more than a training step makes
     ("model(data.tensors[0])", "3 times")],
)  # fmt: skip
def test_an_evaluation_in_train_mode_between_epochs_reads_no_loader(tmp_path, passes, times):
    text = """
for epoch in range(3):
    train(DataLoader(data, 8, shuffle=True), model, optimizer)
    with torch.no_grad():
        PASSES
""".replace("PASSES", passes)
    seen = python(tmp_path, BEGIN + text)
    assert seen.severe == ["eval-in-train-mode"]
    assert seen.found["eval-in-train-mode"][0]["evidence"].startswith(times)


def test_a_test_in_train_mode_and_with_gradients(tmp_path):
    text = """
loaders = DataLoader(data, 8, shuffle=True), DataLoader(TensorDataset(*data[:48]), 8)
for epoch in range(2):
    train(loaders[0], model, optimizer)
    print(sum(F.mse_loss(model(x), y).item() for x, y in loaders[1]))
"""
    text = BEGIN + text
    seen = python(tmp_path, text)
    assert seen.severe == ["eval-in-train-mode"], seen.ran.tail
    assert seen.found["eval-in-train-mode"][0]["where"] == f"train.py:{len(text.splitlines())}"


@pytest.mark.soak
def test_an_evaluation_in_train_mode_where_nothing_has_a_loader(tmp_path):
    text = """
train(zip(*(part.split(8) for part in data.tensors)), model, optimizer)
with torch.no_grad():
    model(data.tensors[0])
"""
    assert python(tmp_path, BEGIN + text).severe == ["eval-in-train-mode"]


@pytest.mark.soak
def test_dropout_inside_a_recurrent_layer_is_active(tmp_path):
    text = """
class Last(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.LSTM(4, 1, num_layers=2, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.layers(x[:, None])[0][:, 0]

model = Last()
train(DataLoader(data, 8), model, torch.optim.SGD(model.parameters(), 0.1))
with torch.no_grad():
    [model(x) for x, y in DataLoader(data, 8)]
"""
    assert python(tmp_path, BEGIN + text).severe == ["eval-in-train-mode"]
