r"""Train a small CNN to tell three shapes apart, in noisy images.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 \
    docs/port/classifier_ddp.py
"""

import argparse
import os

import torch
import torch._dynamo  # before the group, or the group outlives its end
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Shapes(Dataset):
    """Discs, squares and crosses in noisy images of 16 x 16 pixels."""

    def __init__(self, count, seed, augment=False):
        self.augment = augment
        rng = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(3, (count,), generator=rng)
        x, y, size = torch.rand(3, count, 1, 1, generator=rng)
        pixels = torch.arange(16)
        dx = (pixels - 6 - 4 * x).abs() / (3 + 3 * size)
        dy = (pixels[:, None] - 6 - 4 * y).abs() / (3 + 3 * size)
        near, far = torch.minimum(dx, dy), torch.maximum(dx, dy)
        discs, squares = dx**2 + dy**2 < 1, far < 0.9
        crosses = (near < 0.3) & (far < 1)
        shapes = torch.stack([discs, squares, crosses])
        noise = 0.3 * torch.randn(count, 16, 16, generator=rng)
        self.images = (shapes[self.labels, range(count)] + noise)[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            image = image.roll(torch.randint(-2, 3, (2,)).tolist(), (1, 2))
            if torch.rand(1) < 0.5:
                image = image.flip(2)
        return image, self.labels[index]


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16),
        nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32),
        nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 3),
    )


def sum_over_ranks(numbers, device):
    totals = torch.tensor(numbers, device=device)
    dist.all_reduce(totals)  # every rank must call this, or the others hang
    return totals.tolist()


def train_one_epoch(model, loader, loss_fn, optimizer, device):
    model.train()
    loss_sum, seen = 0.0, 0
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = loss_fn(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(labels)
        seen += len(labels)
    loss_sum, seen = sum_over_ranks([loss_sum, seen], device)
    return loss_sum / seen


@torch.no_grad()
def evaluate(model, loader, loss_fn, device):
    model.eval()
    loss_sum, correct, seen = 0.0, 0, 0
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        outputs = model(images)
        loss_sum += loss_fn(outputs, labels).item() * len(labels)
        correct += (outputs.argmax(1) == labels).sum().item()
        seen += len(labels)
    loss_sum, correct, seen = sum_over_ranks([loss_sum, correct, seen], device)
    return loss_sum / seen, correct / seen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    device = torch.device("cpu")
    # One GPU per process. If there are too few, all use the CPU.
    if torch.accelerator.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]):
        torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
        device = torch.accelerator.current_accelerator()
    dist.init_process_group(dist.get_default_backend_for_device(device))
    torch.manual_seed(dist.get_rank())  # each rank augments differently

    train_set = Shapes(3000, seed=1, augment=True)
    train_loader = DataLoader(
        train_set,
        batch_size=args.batch_size // dist.get_world_size(),
        sampler=DistributedSampler(train_set),
        num_workers=args.workers,
        pin_memory=device.type != "cpu",
    )
    val_set = Shapes(501, seed=2)
    val_loader = DataLoader(
        val_set,
        batch_size=args.batch_size,
        # Not DistributedSampler: it would count some images twice.
        sampler=range(dist.get_rank(), len(val_set), dist.get_world_size()),
        pin_memory=device.type != "cpu",
    )

    model = build_model().to(device)
    model = DDP(model)
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = ReduceLROnPlateau(optimizer, factor=0.3, patience=0)

    best = 0.0
    for epoch in range(args.epochs):
        train_loader.sampler.set_epoch(epoch)  # or the order never changes
        train_loss = train_one_epoch(
            model, train_loader, loss_fn, optimizer, device)
        for buffer in model.buffers():  # those of BatchNorm
            dist.broadcast(buffer, src=0)
        val_loss, accuracy = evaluate(model.module, val_loader, loss_fn, device)
        scheduler.step(val_loss)
        if dist.get_rank() != 0:
            continue  # rank 0 prints and saves
        note = ""
        if accuracy > best:
            best = accuracy
            torch.save(model.module.state_dict(), "classifier.pt")
            note = " | saved"
        print(
            f"Epoch {epoch + 1} | train loss {train_loss:.4f} | "
            f"val loss {val_loss:.4f} | accuracy {accuracy:.1%} | "
            f"next lr {optimizer.param_groups[0]['lr']:.4g}{note}")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
