"""What samplers and loaders draw."""

import pytest

from diagnosing import diagnose, python
from right_scripts import BEGIN, TORCHRUN, with_ddp


def test_a_loader_that_is_made_anew_in_each_epoch_has_one_order(tmp_path):
    epochs = """
dist.init_process_group("gloo")
model = DDP(model)
for epoch in range(3):
    sampler = DistributedSampler(data)
    train(DataLoader(data, 8, sampler=sampler), model, optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(epochs))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ["every-epoch-alike"], seen.ran.tail


@pytest.mark.soak
@pytest.mark.parametrize("loader", ["8, shuffle=True", "batch_sampler=[*order.split(8)]"])
def test_samples_that_change_at_random_are_shared_by_their_names(tmp_path, loader):
    text = """
order = torch.randperm(80).repeat(3)  # as of a sampler that never ends
class Images(torch.utils.data.Dataset):
    def __init__(self):
        self.names = [f"{n}.png" for n in torch.randperm(80).tolist()]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        x, y = data[int(self.names[index].partition(".")[0])]
        return x + 0.1 * torch.rand(4), y

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
train(DataLoader(Images(), LOADER), DDP(model), optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text.replace("LOADER", loader)))
    assert diagnose(tmp_path, *TORCHRUN, "train.py").severe == ["not-shared"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("loader", "evidence"),
    [("40, shuffle=True", "RandomSampler"),  # few large batches are no padding
     ("batch_sampler=[*torch.randperm(80).split(8)]", "sampler: list"),
     ("8, sampler=DistributedSampler(data, seed=dist.get_rank())", "with seeds 0 and 1")],
)  # fmt: skip
def test_ranks_that_draw_the_same_samples(tmp_path, loader, evidence):
    text = f"""
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
train(DataLoader(data, {loader}), DDP(model), optimizer)
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ["not-shared"], seen.ran.tail
    assert seen.found["not-shared"][0]["evidence"].endswith(evidence)


@pytest.mark.soak
@pytest.mark.parametrize("change", ["batch['x'] = self[0](x)", "x.requires_grad_()"])
def test_a_model_that_changes_its_input_has_the_same_on_all_ranks(tmp_path, change):
    text = """
class Changes(torch.nn.Sequential):
    def forward(self, batch):
        x = batch["x"]
        CHANGE
        return super().forward(x)

dist.init_process_group("gloo")
model = DDP(Changes(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, y in DataLoader(data, 8):
    optimizer.zero_grad()
    F.mse_loss(model({"x": x}), y).backward()
    optimizer.step()
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(with_ddp(text.replace("CHANGE", change)))
    assert diagnose(tmp_path, *TORCHRUN, "train.py").severe == ["same-batches"]


@pytest.mark.soak
def test_shards_are_trained_on_the_same_inputs(tmp_path):
    text = """
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(4):
    optimizer.zero_grad()
    model(torch.rand(8, 4)).pow(2).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
    (tmp_path / "train.py").write_text(BEGIN + text)
    assert diagnose(tmp_path, *TORCHRUN, "train.py").severe == ["same-batches"]


@pytest.mark.soak
@pytest.mark.parametrize("sets", [True, False])
def test_a_copy_of_the_sampler_needs_its_epoch(tmp_path, sets):
    text = """
class Copied(torch.utils.data.Sampler):
    def __init__(self):
        self.num_replicas, self.rank, self.epoch, self.shuffle = 2, dist.get_rank(), 0, True

    def __len__(self):
        return 40

    def __iter__(self):
        order = torch.randperm(80, generator=torch.Generator().manual_seed(self.epoch))
        return iter(order.tolist()[self.rank :: 2])

dist.init_process_group("gloo")
model, sampler = DDP(model), Copied()
loader = DataLoader(data, 8, sampler=sampler)
for sampler.epoch in EPOCHS:
    train(loader, model, optimizer)
dist.destroy_process_group()
"""
    text = text.replace("EPOCHS", "range(2)" if sets else "(0, 0)")
    (tmp_path / "train.py").write_text(with_ddp(text))
    seen = diagnose(tmp_path, *TORCHRUN, "train.py")
    assert seen.severe == ([] if sets else ["every-epoch-alike"]), seen.ran.tail


@pytest.mark.soak
@pytest.mark.parametrize("new", [True, False])
def test_an_endless_sampler_needs_a_new_order(tmp_path, new):
    text = """
class Endless(torch.utils.data.Sampler):
    shuffle = True

    def __iter__(self):
        for epoch in EPOCHS:
            order = torch.randperm(80, generator=torch.Generator().manual_seed(epoch))
            yield from order.split(8)

train(DataLoader(data, batch_sampler=Endless()), model, optimizer)
"""
    seen = python(tmp_path, BEGIN + text.replace("EPOCHS", "range(3)" if new else "(0, 0, 0)"))
    assert seen.severe == ([] if new else ["every-epoch-alike"]), seen.ran.tail
