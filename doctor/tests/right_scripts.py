"""The beginning of the tests' scripts, and right scripts of one process."""

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
        self.seen = []

    def forward(self, tokens, targets):
        self.calls += 1
        self.seen.append(tokens)
        logits = self.head(self.embed(tokens))
        self.loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        return logits

    def parameters(self, recurse=True):
        return [*super().parameters(recurse)]

model = Kept()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    text = torch.randint(9, (4, 17))
    model(text[:, :-1], text[:, 1:])
    optimizer.zero_grad()
    model.loss.backward()
    optimizer.step()
assert model.calls == len(model.seen) == 4

class Settings:
    def __getattr__(self, name):
        raise KeyError(name)

    def __reduce__(self):
        return Settings, ()

about = {"names": numpy.array(["a", None]), "settings": Settings()}
torch.save({"model": model.state_dict(), **about}, "model.pt")
""",
    "a model that learns its sizes by a pass, has a table in a buffer, and is traced": """
class Sized(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = torch.nn.Embedding(9, 8), torch.nn.BatchNorm1d(8)
        self.register_buffer("table", torch.linspace(0.5, 1, 32)[:, None])
        with torch.no_grad():
            size = self.norm(self.embed(torch.tensor([1, 2]))).shape[1]
        self.head = torch.nn.Linear(size, 9)

    def forward(self, tokens, targets=None):
        places = self.table[: tokens.shape[1]]  # the backward pass needs it
        return self.head(self.embed(tokens) * places)

model = Sized()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
graphs = []
for step in range(6):
    text = torch.randint(9, (4, 17))
    graphs.append(str(torch.jit.trace(model, text[:, :-1]).inlined_graph))
    optimizer.zero_grad()
    logits = model(text[:, :-1], text[:, 1:])
    F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()).backward()
    optimizer.step()
assert not any("uint8" in graph for graph in graphs)
""",
    "samples without an end": """
class Endless(torch.utils.data.Sampler):
    def __iter__(self):
        while True:
            yield from torch.randperm(80).tolist()

class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield data[int(torch.randint(80, ()))]

for loader in DataLoader(data, 8, sampler=Endless()), DataLoader(Stream(), 8):
    batches = iter(loader)
    with_statistics = torch.no_grad()(model)
    train((next(batches) for step in range(20)), model, optimizer, before=with_statistics)
""",
    "passes on two loaders before a backward pass, and for batch statistics": """
others = iter(DataLoader(data, 8, shuffle=True))
for x, y in DataLoader(data, 8, shuffle=True):
    loss = F.mse_loss(model(x), y)
    x, y = next(others)
    optimizer.zero_grad()
    (loss + F.mse_loss(model(x), y)).backward()
    optimizer.step()
torch.optim.swa_utils.update_bn(DataLoader(data, 8), model)
""",
    "weights that are saved, and then trained with a new optimizer": """
few = Subset(data, range(8))
for iteration in range(20):  # so that a new one gets an old one's id
    torch.save(model.state_dict(), f"{iteration}.pt")
    train(DataLoader(few, 8), model, torch.optim.Adam(model.parameters()))
""",
    "the best results, at steps 1 and 8 of 14": """
for step in range(1, 15):
    train(DataLoader(Subset(data, range(8)), 8), model, optimizer)
    if step in (1, 8):
        [torch.save(model.state_dict(), f"{step}.pt") for why in ("best", "last")]
""",
    "adversarial examples, which are made in evaluation mode": """
def attack(x):
    x.requires_grad_()
    F.mse_loss(model.eval()(x), y).backward()
    model.train()
    x.data += 0.1 * x.grad.sign()
    x.requires_grad = False

for x, y in DataLoader(data, 8):
    attack(x)
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
""",
    "an optimizer that is saved itself, with a scaler": """
scaler = torch.amp.GradScaler("cpu")
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    for x, y in DataLoader(data, 8):
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(model(x), y)).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.save([model, optimizer, scaler], f"{epoch}.pt")
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


def with_ddp(text):
    return BEGIN + "from torch.nn.parallel import DistributedDataParallel as DDP\n" + text
