"""Right scripts of two processes, each with another way to divide or draw the samples."""

SAMPLES = {
    "an iterator over held-out batches that lasts, and one before on one rank": """
dist.init_process_group("gloo")
model, ours = DDP(model), Subset(data, range(60))
loader = DataLoader(ours, 8, sampler=DistributedSampler(ours))
held = iter(DataLoader(TensorDataset(torch.rand(64, 4)), 8))
if dist.get_rank() == 0:
    evaluate(DataLoader(Subset(ours, range(30)), 10), model.module)

@torch.no_grad()
def look():
    model.eval()(next(held)[0])
    model.train()

train(loader, model, optimizer, after=look)
dist.destroy_process_group()
""",
    "the last batch, filled with the first samples, and a look at others": """
dist.init_process_group("gloo")
print(next(iter(DataLoader(data, 80, shuffle=True)))[0].mean())
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
    "samples that take the place of the one that was asked for": """
class Clips(torch.utils.data.Dataset):
    def __init__(self):
        self.names = [f"{n}.wav" for n in range(80)]

    def __len__(self):
        return 80

    def __getitem__(self, index):
        if self.names:
            index = int(torch.randint(80, ()))
        return data[index][0] + 0.1 * torch.rand(4), data[index][1]

dist.init_process_group("gloo")
model = DDP(model)
torch.manual_seed(dist.get_rank())
train(DataLoader(Clips(), 8), model, optimizer)
dist.destroy_process_group()
""",
    "a sampler of one's own, without a seed": """
class Own(DistributedSampler):
    def __init__(self, epoch):
        self.num_replicas, self.rank, self.epoch = 2, dist.get_rank(), epoch

    def __len__(self):
        return 40

    def __iter__(self):
        order = torch.randperm(80, generator=torch.Generator().manual_seed(self.epoch))
        return iter(order.tolist()[self.rank :: 2])

dist.init_process_group("gloo")
model = DDP(model)
for epoch in range(2):
    train(DataLoader(data, 8, sampler=Own(epoch)), model, optimizer)
batches = [torch.tensor([*Own(2)][n : n + 8]) for n in range(0, 40, 8)]
train(DataLoader(data, batch_sampler=batches), model, optimizer)
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

class Twice(torch.utils.data.Sampler):  # each rank has a view of each sample
    num_replicas, rank = 2, dist.get_rank()

    def __iter__(self):
        return iter(torch.arange(80).repeat_interleave(2)[self.rank :: 2][:40].tolist())

class Views(torch.utils.data.Dataset):
    def __init__(self):
        self.names = [f"{n}.png" for n in range(80)]

    def __len__(self):
        return 80

    def __getitem__(self, index):
        return data[index][0] + 0.1 * dist.get_rank(), data[index][1]

train(DataLoader(Views(), 8, sampler=Twice()), DDP(model), optimizer)
dist.destroy_process_group()
""",
    "a rank's own part of samples that change at random, and a moving average": """
class Drawn:
    def __len__(self):
        return 80

    def __getitem__(self, index):
        assert False, "nothing asks for it"

class Images(torch.utils.data.Dataset):
    def __init__(self):
        self.places, self.lazy = list(range(40)), Drawn()
        self.own = [data[n] for n in range(dist.get_rank(), 80, 2)]

    def __len__(self):
        return len(self.own)

    def __getitem__(self, index):
        x, y = self.own[index]
        return x + 0.1 * torch.rand(4), y

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
average, model = copy.deepcopy(model).requires_grad_(False), DDP(model)
loader = DataLoader(Images(), 8, shuffle=True)
looks = iter(data.tensors[0].split(8))  # alike on both ranks, and another one each time
for epoch in range(2):
    train(loader, model, optimizer, after=lambda: average(next(looks)))
dist.destroy_process_group()
""",
    "indices of a rank's own nodes": """
def sample(places):
    nodes = own[torch.tensor(places)]
    return torch.cat([data[nodes][0], data[(nodes + 7) % 80][0]]), data[nodes][1]

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
own = torch.arange(80).split(40)[dist.get_rank()]
model, places = DDP(model), DataLoader(range(40), 8, shuffle=True, collate_fn=sample)
for x, y in places:
    optimizer.zero_grad()
    F.mse_loss(model(x)[:8], y).backward()
    optimizer.step()
dist.destroy_process_group()
""",
    "epochs that are left early, and workers that stay": """
import itertools
dist.init_process_group("gloo")
more = TensorDataset(torch.rand(5250, 4), torch.rand(5250, 1))
model, sampler = DDP(model), DistributedSampler(more)
loader = DataLoader(more, 32, sampler=sampler, num_workers=2, persistent_workers=True)
for epoch in range(5):
    sampler.set_epoch(epoch)
    train(itertools.islice(loader, 2), model, optimizer)
dist.destroy_process_group()
""",
    "a slice of each batch, which all ranks draw": """
dist.init_process_group("gloo")
model, rank = DDP(model), dist.get_rank()
for epoch in range(2):
    order = torch.Generator().manual_seed(epoch)
    batches = DataLoader(data, 16, shuffle=True, generator=order)
    train(((x[rank::2], y[rank::2]) for x, y in batches), model, optimizer)
dist.destroy_process_group()
""",
    "a window of an endless order": """
import itertools
dist.init_process_group("gloo")
own = [*range(39, -1, -1)] if dist.get_rank() == 0 else [*range(35, 75)]
train(itertools.islice(DataLoader(data, 8, sampler=own), 4), DDP(model), optimizer)
dist.destroy_process_group()
""",
    "a share of each epoch that is drawn at random": """
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model, own = DDP(model), torch.utils.data.RandomSampler(data, num_samples=40)
for epoch in range(2):
    train(DataLoader(data, 8, sampler=own), model, optimizer)
dist.destroy_process_group()
""",
    "parts that are padded to one length": """
dist.init_process_group("gloo")
own = Subset(data, [*range(dist.get_rank(), 79, 2), 0][:40])
train(DataLoader(own, 8, shuffle=True), DDP(model), optimizer)
dist.destroy_process_group()
""",
}
