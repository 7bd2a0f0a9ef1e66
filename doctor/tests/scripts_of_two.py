"""Right scripts of two processes; what looks like a defect in them is none."""

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
model, all_of = Half(), DistributedSampler(data, num_replicas=1, rank=0)
train(DataLoader(data, 8, sampler=all_of), model, torch.optim.SGD(model.parameters(), 0.1))
dist.destroy_process_group()
""",
    "shards that are gathered, and saved by one rank": """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
dist.init_process_group("gloo")
model = FSDP(model, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
train(DataLoader(data, 8, sampler=DistributedSampler(data)), model, optimizer)
state = model.state_dict()
if dist.get_rank() == 0:
    torch.save(state, "model.pt")
dist.destroy_process_group()
""",
    "parameters in a set, which has another order in each process": """
dist.init_process_group("gloo")
model = DDP(model)
optimizer = torch.optim.SGD({*model.parameters()}, 0.1, momentum=0.9)
train(DataLoader(data, 8, sampler=DistributedSampler(data)), model, optimizer)
dist.destroy_process_group()
""",
    "a half of each sequence": """
class Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own):
        other, received = 1 - dist.get_rank(), torch.empty_like(own)
        requests = [dist.isend(own.contiguous(), other), dist.irecv(received, other)]
        [request.wait() for request in requests]
        return received

    @staticmethod
    def backward(ctx, gradient):
        return Passed.apply(gradient)

class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        own = self.layer(x)
        return (own + Passed.apply(own)) / 2

def halve(batches):
    for x, y in batches:
        half = x.split(4)[dist.get_rank()]  # the first samples are here the first tokens
        yield half, y[:4]

def average():
    [dist.all_reduce(p.grad, dist.ReduceOp.AVG) for p in model.parameters()]

dist.init_process_group("gloo")
model = Mean()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
optimizer.register_step_pre_hook(lambda *_: average())
every = DistributedSampler(data, num_replicas=1, rank=0)
train(halve(DataLoader(data, 8, sampler=every)), model, optimizer)
dist.destroy_process_group()
""",
    "another task on each rank, to which a copy of the model adapts": """
dist.init_process_group("gloo")
optimizer = torch.optim.Adam(model.parameters())
rank = dist.get_rank()
for x, y in DataLoader(data, 40, sampler=DistributedSampler(data)):
    for task in range(4):
        adapted = copy.deepcopy(model)
        batches = [(x[n::4], y[n::4] + rank) for n in range(4)]
        train(batches, adapted, torch.optim.SGD(adapted.parameters(), 0.1))
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        for p, new in zip(model.parameters(), adapted.parameters()):
            p.grad = p.detach() - new.detach()
            dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        optimizer.step()
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
    "a lazy module, whose import fails": """
import sys, types

class Lazy(types.ModuleType):
    def __getattr__(self, name):
        raise ImportError(name)

sys.modules["lazy"] = Lazy("lazy")
dist.init_process_group("gloo")
train(DataLoader(data, 8, sampler=DistributedSampler(data)), DDP(model), optimizer)
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
