"""Defects that show in scripts of other kinds than correct_trainer.py."""

import pytest

from diagnosing import diagnose, free_port, python
from right_scripts import BEGIN, TORCHRUN, with_ddp


@pytest.mark.soak
def test_features_that_are_gathered_do_not_hide_that_ddp_is_missing(tmp_path):
    text = """
class Gathered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        own = self.layer(x)
        dist.all_gather([torch.empty_like(own) for _ in range(2)], own.detach())
        return own

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = Gathered()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train(DataLoader(data, 8, sampler=DistributedSampler(data)), model, optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(BEGIN + text)
    assert diagnose(tmp_path, *TORCHRUN, "train.py").severe == ["diverged"]


GAN = """
def train_both():
    both = [DDP(network()), network()]
    optimizers = [torch.optim.SGD(one.parameters(), 0.01) for one in both]
    for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
        for model, optimizer in zip(reversed(both), reversed(optimizers)):
            train([(x, y)], model, optimizer)
    AFTER

dist.init_process_group("gloo")
train_both()
dist.destroy_process_group()
"""


@pytest.mark.soak
def test_one_of_two_models_is_not_in_ddp(tmp_path):
    (tmp_path / "train.py").write_text(with_ddp(GAN.replace("AFTER", "")))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ["diverged"], seen.ran.tail


@pytest.mark.soak
def test_one_of_two_models_is_averaged(tmp_path):
    average = "[dist.all_reduce(p.data, dist.ReduceOp.AVG) for p in both[1].parameters()]"
    (tmp_path / "train.py").write_text(with_ddp(GAN.replace("AFTER", average)))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert not seen.severe, seen.ran.tail


@pytest.mark.soak
def test_a_rank_has_another_rate_and_reduces_its_loss_in_place(tmp_path):
    """The model that is called has DDP inside. The loss is the mean of all ranks."""
    text = """
dist.init_process_group("gloo")
model = torch.nn.Sequential(DDP(model))
optimizer = torch.optim.SGD(model.parameters(), 0.1 + 0.1 * dist.get_rank())
for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    dist.reduce(loss.detach().div_(2), 0)
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"loss {loss.item():.5f}")
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ["diverged"] and "loss-of-one-rank" not in seen.found, seen.ran.tail
    assert seen.found["diverged"][0]["evidence"] == "ranks 0 and 1 differ after step 1"


@pytest.mark.soak
@pytest.mark.parametrize("waits", ["one.join()", "queue.get()"])
def test_processes_of_a_class_fail_and_the_parent_ends_well_or_waits(tmp_path, waits):
    text = """
import torch.multiprocessing as mp

class Worker(mp.get_context("fork").Process):
    def run(self):
        model(data.tensors[0]).sum().backward()
        raise ValueError("no step")

queue, both = mp.Queue(), [Worker(), Worker()]
[one.start() for one in both]
for one in both:
    WAITS
"""
    seen = python(tmp_path, BEGIN + text.replace("WAITS", waits), "--limit", "12")
    (finding,) = seen.found["crashed"]
    assert finding["evidence"].endswith("ValueError: no step"), seen.ran.tail


@pytest.mark.soak
def test_an_exception_is_shown_before_the_exit(tmp_path):
    text = """
import sys

try:
    train(DataLoader(data, 0), model, optimizer)
except ValueError as error:
    print(error)
    sys.exit(1)
"""
    (finding,) = python(tmp_path, BEGIN + text).found["crashed"]
    assert finding["where"] == f"train.py:{len(BEGIN.splitlines()) + 5}"


@pytest.mark.soak
def test_an_exception_hides_another(tmp_path):
    text = """
try:
    train(DataLoader(data, 0), model, optimizer)
except ValueError:
    raise RuntimeError("not trained")
"""
    (finding,) = python(tmp_path, BEGIN + text).found["crashed"]
    first, hidden = (len(BEGIN.splitlines()) + line for line in (5, 3))
    assert finding["where"] == f"train.py:{first}"
    assert "RuntimeError: not trained, while it handled ValueError: batch_size" in (
        finding["evidence"]
    )
    assert finding["evidence"].endswith(f"(train.py:{hidden})")


@pytest.mark.soak
def test_a_bar_shows_the_loss_of_one_rank(tmp_path):
    """Each time on the same line, beside a number that is no loss."""
    text = """
dist.init_process_group("gloo")
model = DDP(model)
for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"\\r0.125 loss {loss.item():.5f}", end="")
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.found["loss-of-one-rank"][0]["evidence"].startswith("5 times"), seen.ran.tail


@pytest.mark.soak
def test_a_buffer_that_ddp_ignores_does_not_hide_other_weights(tmp_path):
    text = """
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
model.register_buffer("table", torch.zeros(3))
model._ddp_params_and_buffers_to_ignore = {"table"}
inside = DDP(model).module
torch.manual_seed(dist.get_rank())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train(DataLoader(data, 8, sampler=DistributedSampler(data)), inside, optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    assert diagnose(tmp_path, *TORCHRUN, "train.py").severe == ["diverged"]


@pytest.mark.soak
def test_a_port_in_a_module_of_settings(tmp_path):
    (tmp_path / "settings.py").write_text(f'ADDRESS = "tcp://127.0.0.1:{free_port()}"\n')
    text = """
import settings
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=settings.ADDRESS, rank=rank, world_size=2)
train(DataLoader(data, 8, sampler=DistributedSampler(data)), DDP(model), optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    (finding,) = diagnose(tmp_path, *TORCHRUN, "train.py").found["fixed-port"]
    assert finding["where"] == "settings.py:1"


@pytest.mark.soak
def test_a_gathered_tensor_may_need_a_gradient_on_a_gpu(tmp_path):
    text = """
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DDP(model.cuda())
out = torch.zeros(16, 1, device="cuda")
train(DataLoader(data, 8, sampler=DistributedSampler(data)), model, optimizer)
y = model(torch.rand(8, 4).cuda())
dist.all_gather_into_tensor(out, y)
assert out.abs().sum() > 0
y.sum().backward()
optimizer.step()
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py", options=("--cpu", "2"))
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


def test_a_compiled_model_inside_ddp_is_looked_at(tmp_path):
    """A compiled module that has no length has no truth either."""
    text = """
class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = model

    def forward(self, x):
        return self.inside(x)

dist.init_process_group("gloo")
model = DDP(torch.compile(Network(), backend="eager"))
train(DataLoader(data, 8, shuffle=True), model, optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ["same-batches"] and not seen.report["not examined"][1:], seen.ran.tail


@pytest.mark.soak
def test_an_optimizer_that_makes_the_passes_itself_is_watched(tmp_path):
    text = """
optimizer = torch.optim.LBFGS(model.parameters())
x, y = data.tensors

def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y) / 0
    loss.backward()
    return loss

for step in range(3):
    optimizer.step(closure)
"""
    seen = python(tmp_path, BEGIN + text)
    assert seen.severe == ["nan"] and "3 optimizer steps" in seen.report["header"], seen.ran.tail


@pytest.mark.soak
def test_a_model_that_sees_the_next_token_and_flattens_its_logits(tmp_path):
    text = """
class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9)

    def forward(self, tokens, targets):
        hidden = self.embed(tokens)
        return self.head(hidden + hidden.mean(1, keepdim=True)).flatten(0, 1)

model = Mean()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    text = torch.randint(9, (4, 17))
    optimizer.zero_grad()
    F.cross_entropy(model(text[:, :-1], text[:, 1:]), text[:, 1:].flatten()).backward()
    optimizer.step()
"""
    assert python(tmp_path, BEGIN + text).severe == ["not-causal"]


@pytest.mark.soak
def test_a_second_backward_pass_is_not_reduced(tmp_path):
    text = """
dist.init_process_group("gloo")
model = DDP(model)
for x, y in DataLoader(data, 8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    out = model(x)
    F.mse_loss(out, y).backward(retain_graph=True)
    out.pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ["diverged"] and "sync-every-microstep" not in seen.found, seen.ran.tail
