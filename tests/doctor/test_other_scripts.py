"""Scripts of other kinds: what looks like a defect in them is none, or the other way round."""

import pytest

from tools.processes import free_port

from .doctor import diagnose, python

TORCHRUN = ["torchrun", "--standalone", "--nproc_per_node=2"]
BEGIN = """
import copy, os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset, random_split

torch.manual_seed(0)
data = TensorDataset(torch.rand(80, 4), torch.rand(80, 1))

def network():
    layers = [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1)]
    return torch.nn.Sequential(*layers)

def train(loader, model, optimizer, before=lambda x: None, after=lambda: None):
    for x, y in loader:
        before(x)
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        after()

@torch.no_grad()
def evaluate(loader, model):
    model.eval()
    print(sum(float(F.mse_loss(model(x), y)) for x, y in loader))
    model.train()

model = network()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""

SOON = (  # the others in make soak
    "another dataset of the same class", "cross-validation", "two stages of one model",
    "a teacher without gradients, in train mode",
    "a model that keeps its loss, and a table in its checkpoint",
)  # fmt: skip
RIGHT = {
    "another dataset of the same class": """
other = TensorDataset(torch.rand(50, 4), torch.rand(50, 1))
for epoch in range(2):
    train(DataLoader(Subset(data, range(40)), 8, shuffle=True), model, optimizer)
    evaluate(DataLoader(Subset(other, range(40)), 8), model)
""",
    "cross-validation": """
for fold in range(4):
    held = range(fold * 20, fold * 20 + 20)
    rest = [i for i in range(80) if i not in held]
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(DataLoader(Subset(data, rest), 8, shuffle=True), model, optimizer)
    evaluate(DataLoader(Subset(data, held), 8), model)
""",
    "a loss on the training set, beside that on the held-out one": """
ours, held = random_split(data, [60, 20], torch.Generator().manual_seed(1))
loaders = [DataLoader(ours, 8, shuffle=True), DataLoader(ours, 20), DataLoader(held, 20)]
for epoch in range(2):
    train(loaders[0], model, optimizer)
    evaluate(loaders[1], model)
    evaluate(loaders[2], model)
""",
    "a teacher without gradients, in train mode": """
teacher = copy.deepcopy(model).requires_grad_(False)

@torch.no_grad()
def targets(x):
    teacher(x), teacher(x + 0.1), model(x)  # the model too: it adapts its statistics to x

for epoch in range(2):
    train(DataLoader(data, 8, shuffle=True), model, optimizer, targets)
train(zip(*(part.split(8) for part in data.tensors)), model, optimizer, teacher)
""",
    "a model that is saved once, where that of an earlier run is": """
torch.save({}, "model.pt")
train(DataLoader(data, 8, shuffle=True), model, optimizer)
torch.save(model.state_dict(), "model.pt")
""",
    "weights that are kept in memory, beside a text file": """
import io
for epoch in range(3):
    train(DataLoader(data, 8), model, optimizer)
    torch.save(model.state_dict(), io.BytesIO())
    with open("metrics.txt", "w") as file:
        file.write(f"{epoch}")
""",
    "a model that keeps its loss, and a table in its checkpoint": """
import numpy

class Kept(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(9, 8), torch.nn.Linear(8, 9)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens, targets):
        self.calls += 1
        logits = self.head(self.embed(tokens))
        self.loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits

model = Kept()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    text = torch.randint(9, (4, 17))
    model(text[:, :-1], text[:, 1:])
    optimizer.zero_grad()
    model.loss.backward()
    optimizer.step()
assert model.calls == 4
torch.save({"model": model.state_dict(), "names": numpy.array(["a", None])}, "model.pt")
""",
    "updates by hand": """
for x, y in DataLoader(data, 8, shuffle=True):
    gradients = torch.autograd.grad(F.mse_loss(model(x), y), [*model.parameters()])
    with torch.no_grad():
        for p, gradient in zip(model.parameters(), gradients):
            p -= 0.1 * gradient
""",
    "a few rows of a large table": """
table = torch.nn.Embedding(200_000, 8)
optimizer = torch.optim.SGD(table.parameters(), 0.1)
for step in range(8):
    optimizer.zero_grad()
    table(torch.tensor([7, 11 + step])).sum().backward()
    optimizer.step()
""",
}

PAIR = {
    "processes that share one model, without a group": """
import torch.multiprocessing as mp

def work(model, seed):
    torch.manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    train(DataLoader(data, 8, shuffle=True), model, optimizer)

if __name__ == "__main__":
    model.share_memory()
    both = [mp.get_context("spawn").Process(target=work, args=(model, n)) for n in range(2)]
    [one.start() for one in both]
    [one.join() for one in both]
""",
    "two stages of one model": """
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
stage = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(stage.parameters(), 0.1)
for step in range(6):
    x = torch.rand(4, 4)
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        out = stage(x)
        dist.send(out.detach(), 1)
        gradient = torch.empty(4, 4)
        dist.recv(gradient, 1)
        out.backward(gradient)
    else:
        dist.recv(x, 0)
        x.requires_grad_()
        (stage(x) - 1).pow(2).mean().backward()
        dist.send(x.grad, 0)
    optimizer.step()
dist.destroy_process_group()
""",
    "halves of a layer": """
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient

class Half(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1, bias=False)

    def forward(self, x):
        return Sum.apply(self.second(torch.relu(self.first(x))))

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = Half()
train(DataLoader(data, 8), model, torch.optim.SGD(model.parameters(), 0.1))
dist.destroy_process_group()
""",
    "an iterator over held-out batches that lasts": """
dist.init_process_group("gloo")
model = DDP(model)
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
held = iter(DataLoader(TensorDataset(torch.rand(64, 4)), 8))

@torch.no_grad()
def look():
    model.eval()(next(held)[0])
    model.train()

train(loader, model, optimizer, after=look)
dist.destroy_process_group()
""",
    "the last batch, filled with the first samples": """
dist.init_process_group("gloo")
batches = [[*range(n, n + 8)] for n in range(0, 72, 8)] + [[*range(8)]]
own = batches[dist.get_rank() :: 2]
train(DataLoader(TensorDataset(*data[:72]), batch_sampler=own), DDP(model), optimizer)
dist.destroy_process_group()
""",
    "samples that are drawn whatever the index": """
class Windows(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        at = int(torch.randint(80, ()))
        return data[at]

dist.init_process_group("gloo")
model = DDP(model)
torch.manual_seed(dist.get_rank())
windows = Windows()
for epoch in range(2):
    order = torch.Generator().manual_seed(0)
    train(DataLoader(windows, 8, shuffle=True, generator=order), model, optimizer)
dist.destroy_process_group()
""",
    "tables of which each rank has its own": """
class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        dist.all_to_all_single(y, x.contiguous())
        return y

    @staticmethod
    def backward(ctx, gradient):
        return Exchange.forward(ctx, gradient)

class Tables(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.own = torch.nn.Linear(2, 4)
        self.shared = torch.nn.Linear(8, 1)

    def forward(self, x):
        of = x[:, 2 * dist.get_rank() :][:, :2]  # this rank's features, of all samples
        parts = Exchange.apply(self.own(of)).view(2, -1, 4)
        return self.shared(parts.transpose(0, 1).flatten(1))

dist.init_process_group("gloo")
model = Tables()
model.shared = DDP(model.shared)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
half = slice(4 * dist.get_rank(), 4 * dist.get_rank() + 4)
for x, y in DataLoader(data, 8):
    optimizer.zero_grad()
    F.mse_loss(model(x), y[half]).backward()
    optimizer.step()
dist.destroy_process_group()
""",
    "buckets that are filled": """
class Buckets(DistributedSampler):
    def __iter__(self):
        filled = [n for at in range(0, 80, 5) for n in (*range(at, at + 5), at, at + 1, at + 2)]
        return iter(filled[self.rank :: 2])

dist.init_process_group("gloo")
loader = DataLoader(data, 4, sampler=Buckets(data))
train(loader, DDP(model), optimizer)
dist.destroy_process_group()
""",
    "samples that are repeated on purpose": """
dist.init_process_group("gloo")
thrice = torch.randperm(80).repeat_interleave(3)[dist.get_rank() :: 2][:40].tolist()
train(DataLoader(data, 8, sampler=thrice), DDP(model), optimizer)
dist.destroy_process_group()
""",
    "parts that are padded to one length": """
dist.init_process_group("gloo")
own = Subset(data, [*range(dist.get_rank(), 79, 2), 0][:40])
train(DataLoader(own, 8, shuffle=True), DDP(model), optimizer)
dist.destroy_process_group()
""",
    "a rank that chooses no device, beside one that does": """
def say(text):
    rank = dist.get_rank()
    print(text, rank)

def work(rank):
    torch.accelerator.set_device_index(rank) if torch.cuda.is_available() else None
    say("at work")

dist.init_process_group("gloo")
work(int(os.environ["LOCAL_RANK"]))
train(DataLoader(data, 8, sampler=DistributedSampler(data)), DDP(model), optimizer)
dist.destroy_process_group()
""",
}

RESTARTED = """
begin = 0
if os.path.exists("last.pt"):
    state = torch.load("last.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin = state["epochs"]
for epoch in range(begin, 10):
    train(DataLoader(data, 8, shuffle=True), model, optimizer)
    if epoch % 2 == 0:
        torch.save(model.state_dict(), "best.part")
        os.replace("best.part", "best.pt")
    if epoch % 2 == 1:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "epochs": epoch + 1}, "last.part")
        os.replace("last.part", "last.pt")
"""


def some(table):
    return [pytest.param(n, marks=() if n in SOON else pytest.mark.soak) for n in table]


@pytest.mark.parametrize("name", some(RIGHT))
def test_a_right_script_has_no_findings(tmp_path, name):
    seen = python(tmp_path, BEGIN + RIGHT[name])
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail
    assert not any(":" in why and "_note" in why for why in seen.report["not examined"])


@pytest.mark.parametrize("name", some(PAIR))
def test_a_right_script_of_two_processes_has_no_findings(tmp_path, name):
    (tmp_path / "train.py").write_text(_with_ddp(PAIR[name]))
    launch = ["python"] if "spawn" in PAIR[name] else TORCHRUN
    seen = diagnose(tmp_path, *launch, "train.py")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


@pytest.mark.soak
def test_the_best_model_is_not_what_an_unseeded_run_resumes_from(tmp_path):
    text = BEGIN.replace("torch.manual_seed(0)", "")
    seen = python(tmp_path, text + RESTARTED, "--restart")
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


@pytest.mark.soak
def test_a_run_that_resumes_through_a_link_is_compared(tmp_path):
    text = RESTARTED.replace('os.replace("last.part", "last.pt")', """
        os.replace("last.part", f"{epoch}.pt")
        if os.path.islink("last.pt"):
            os.unlink("last.pt")
        os.symlink(f"{epoch}.pt", "last.pt")""").replace("epoch + 1}", "epoch}")
    seen = python(tmp_path, BEGIN + text, "--restart")
    assert "resume-count" in seen.severe, seen.ran.tail


def test_a_loader_that_is_made_anew_in_each_epoch_has_one_order(tmp_path):
    epochs = """
dist.init_process_group("gloo")
model = DDP(model)
for epoch in range(3):
    sampler = DistributedSampler(data)
    train(DataLoader(data, 8, sampler=sampler), model, optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(_with_ddp(epochs))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ["every-epoch-alike"], seen.ran.tail


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
    assert finding["evidence"].startswith("1.pt has no optimizer state")


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
    (tmp_path / "train.py").write_text(_with_ddp(text))
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
    (tmp_path / "train.py").write_text(_with_ddp(text))
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
    (tmp_path / "train.py").write_text(_with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py", options=("--cpu", "2"))
    assert seen.ran.status == 0 and not seen.severe, seen.ran.tail


@pytest.mark.soak
def test_two_large_batches_that_are_no_padding(tmp_path):
    text = """
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
train(DataLoader(data, 40, shuffle=True), DDP(model), optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(_with_ddp(text))
    assert diagnose(tmp_path, *TORCHRUN, "train.py").severe == ["not-shared"]


@pytest.mark.soak
def test_an_evaluation_in_train_mode_after_the_last_batch_of_training(tmp_path):
    """It reads no loader: it is more passes than a training step makes."""
    text = """
for epoch in range(2):
    train(DataLoader(data, 8, shuffle=True), model, optimizer)
    with torch.no_grad():
        print(sum(float(model(x).sum()) for x in data.tensors[0].split(8)))
"""
    assert python(tmp_path, BEGIN + text).severe == ["eval-in-train-mode"]


@pytest.mark.soak
def test_an_evaluation_in_train_mode_of_one_batch_between_epochs(tmp_path):
    text = """
for epoch in range(3):
    train(DataLoader(data, 8, shuffle=True), model, optimizer)
    with torch.no_grad():
        model(data.tensors[0])
"""
    seen = python(tmp_path, BEGIN + text)
    assert seen.severe == ["eval-in-train-mode"]
    assert seen.found["eval-in-train-mode"][0]["evidence"].startswith("3 times")


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


def _with_ddp(text):
    return BEGIN + "from torch.nn.parallel import DistributedDataParallel as DDP\n" + text
