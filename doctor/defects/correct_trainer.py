"""Train a small language model on two CPU processes, correctly.

    python correct_trainer.py

The tests of the doctor break one line of it at a time. It forks its processes, which saves two
imports of torch.
"""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler, random_split

EPOCHS, SAVE_EVERY, BATCH, VOCABULARY = 4, 2, 4, 17
PATH = "checkpoint.pt"


class Tokens(Dataset):
    def __init__(self, seed=1):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(VOCABULARY, (80, 9), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return self.tokens[index, :-1], self.tokens[index, 1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.attend = nn.MultiheadAttention(16, 2, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(16, VOCABULARY)

    def forward(self, tokens, targets=None):
        x = self.embed(tokens)
        length = tokens.shape[1]
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        x = x + self.attend(x, x, x, attn_mask=mask, need_weights=False)[0]
        logits = self.head(self.drop(x))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def save(model, optimizer, schedule, epochs):
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "schedule": schedule.state_dict(), "epochs": epochs}, f"{PATH}.part")
    os.replace(f"{PATH}.part", PATH)


def load(model, optimizer, schedule):
    if not os.path.exists(PATH):
        return 0
    state = torch.load(PATH, weights_only=True)
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    return state["epochs"]


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        total = sum(model(*batch)[1] * len(batch[0]) for batch in loader)
    model.train()
    counts = torch.tensor([total, sum(len(batch[0]) for batch in loader)])
    dist.all_reduce(counts)
    return counts[0] / counts[1]


def train(rank, world_size):
    torch.manual_seed(rank)
    dataset = Tokens()
    training, held = random_split(dataset, [64, 16], torch.Generator().manual_seed(2))
    sampler = DistributedSampler(training)
    loader = DataLoader(training, batch_size=BATCH, sampler=sampler)
    mine = torch.utils.data.Subset(held, range(rank, len(held), world_size))
    held_loader = DataLoader(mine, batch_size=BATCH)
    model = DDP(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    begin = load(model, optimizer, schedule)
    for epoch in range(begin, EPOCHS):
        torch.manual_seed(world_size * epoch + rank)
        sampler.set_epoch(epoch)
        for tokens, targets in loader:
            optimizer.zero_grad()
            _, loss = model(tokens, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            mean = loss.detach() / world_size
            dist.all_reduce(mean)
            if rank == 0:
                print(f"loss {mean.item():.5f}")
        evaluate(model, held_loader)
        if rank == 0 and (epoch + 1) % SAVE_EVERY == 0:
            save(model, optimizer, schedule, epoch + 1)


def worker(rank, address, world_size):
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world_size)
    train(rank, world_size)  # DDP must end before the group, or gloo may hang
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as held:  # so that no other program gets the port
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{held.getsockname()[1]}"
        mp.start_processes(worker, (address, 2), nprocs=2, start_method="fork")
