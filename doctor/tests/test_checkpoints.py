"""What is in a checkpoint, and how it is written."""

import pytest

from diagnosing import python
from right_scripts import BEGIN


@pytest.mark.soak
def test_one_of_two_optimizers_is_not_saved(tmp_path):
    text = """
both = [network(), model]
optimizers = [torch.optim.Adam(one.parameters()) for one in both]
for epoch in range(2):
    for pair in zip(both, optimizers):
        train(DataLoader(data, 8), *pair)
    models = [one.state_dict() for one in both]
    torch.save({"models": models, "optimizer": optimizers[1].state_dict()}, f"{epoch}.pt")
"""
    (finding,) = python(tmp_path, BEGIN + text).found["state-missing"]
    assert finding["evidence"] == "0.pt has 18 of 36 tensors of optimizer state"


@pytest.mark.soak
def test_a_file_with_the_state_alone_is_overwritten(tmp_path):
    text = """
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    train(DataLoader(data, 8), model, optimizer)
    torch.save(model.state_dict(), f"{epoch}.pt")
    torch.save(optimizer.state_dict(), "optimizer.pt")
"""
    seen = python(tmp_path, BEGIN + text)
    assert seen.severe == ["in-place"]
    assert seen.found["in-place"][0]["evidence"] == "optimizer.pt: overwritten 2 times"


@pytest.mark.soak
def test_a_file_of_one_of_two_models_is_overwritten(tmp_path):
    text = """
other = network()
optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (model, other)]
for epoch in range(3):
    train(DataLoader(data, 8), model, optimizers[0])
    train(DataLoader(data, 8), other, optimizers[1])
    torch.save(model.state_dict(), "generator.pt")
"""
    assert python(tmp_path, BEGIN + text).severe == ["in-place"]


@pytest.mark.soak
def test_a_model_that_is_exported_at_the_end_is_not_the_checkpoint(tmp_path):
    text = """
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for epoch in range(2):
    train(DataLoader(data, 8), model, optimizer)
    torch.save({"model": model.state_dict()}, f"{epoch}.pt")
    train(DataLoader(data, 8), model, optimizer)
torch.save(model.state_dict(), "exported.pt")
"""
    (finding,) = python(tmp_path, BEGIN + text).found["state-missing"]
    assert finding["evidence"].startswith("1.pt has 0 of 6 tensors of optimizer state")


@pytest.mark.soak
def test_a_checkpoint_of_half_the_bits_is_one(tmp_path):
    text = """
for epoch in range(3):
    train(DataLoader(data, 8), model, optimizer)
    epoch == 2 or torch.save(model, "first.pt")
    torch.save({"model": copy.deepcopy(model).half()}, "last.pt")
"""
    seen = python(tmp_path, BEGIN + text)
    assert seen.severe == ["in-place"], seen.ran.tail
    assert "last.pt: overwritten 2 times" in seen.found["in-place"][0]["evidence"]


@pytest.mark.parametrize(
    ("name", "way"),
    [("last.pt", 'open("last.pt", "wb")'),
     pytest.param("another", "tempfile.NamedTemporaryFile(delete=False)", marks=pytest.mark.soak)],
)  # fmt: skip
def test_a_checkpoint_that_goes_through_memory_is_seen(tmp_path, name, way):
    text = """
import io, tempfile
for epoch in range(3):
    train(DataLoader(data, 8), model, optimizer)
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    with WAY as file:
        file.write(buffer.getvalue())
    file.name == "last.pt" or os.replace(file.name, "last.pt")
"""
    text = text.replace("WAY", way).replace(', "optimizer": optimizer.state_dict()', "")
    found = python(tmp_path, BEGIN.replace("0.1)", "0.1, momentum=0.9)") + text).found
    assert ("in-place" in found) == (name == "last.pt")
    assert "last.pt" in found["state-missing"][0]["evidence"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("save", "load"),
    [("save(state, checkpoint_id=folder)", "load(state, checkpoint_id=folder)"),
     ("save(state, storage_writer=dcp.FileSystemWriter(folder))",
      "load_state_dict(state, dcp.FileSystemReader(folder), no_dist=True)")],
)  # fmt: skip
def test_a_checkpoint_of_parts_is_compared_after_a_restart(tmp_path, save, load):
    text = f"""
import glob
import torch.distributed.checkpoint as dcp
state = {{"model": model.state_dict(), "epochs": 0}}
for folder in sorted(glob.glob("*.d"))[-1:]:
    dcp.{load}
model.load_state_dict(state["model"])
for epoch in range(max(state["epochs"] - 1, 0), 4):
    train(DataLoader(data, 8), model, optimizer)
    state, folder = {{"model": model.state_dict(), "epochs": epoch + 1}}, f"{{epoch}}.d"
    dcp.{save}
"""
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-count" in seen.severe, seen.ran.tail
