"""Send micro-batches through the stages of a model, forward and back: GPipe.

    python docs/theory/pipeline_by_hand.py

Runs four CPU processes over gloo, with or without GPUs. NPROC=2 starts two.
"""

import datetime
import os
import sys

import torch
import torch._dynamo  # a later import would keep the group's threads alive
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

WORLD_SIZE = int(os.environ.get("NPROC", 4))
LAYERS, WIDTH, MICRO_BATCHES = 8, 32, 4

torch.manual_seed(0)  # the same data in every process
INPUTS = torch.randn(64, WIDTH)
TARGETS = INPUTS.sin()


def gpipe(stage, rank, last):
    """Forward all micro-batches, then backward; return the mean loss."""
    kept, losses = [], []
    parts = INPUTS.chunk(MICRO_BATCHES), TARGETS.chunk(MICRO_BATCHES)
    for inputs, targets in zip(*parts, strict=True):
        if rank > 0:
            inputs = torch.empty_like(inputs)
            dist.recv(inputs, rank - 1)  # the activations
            inputs.requires_grad_()
        outputs = stage(inputs)
        if rank < last:
            dist.send(outputs.detach(), rank + 1)
        else:
            outputs = F.mse_loss(outputs, targets) / MICRO_BATCHES
            losses.append(outputs.detach())
        kept.append((inputs, outputs))
    for inputs, outputs in kept:
        gradient = None  # the loss needs none
        if rank < last:
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, rank + 1)
        outputs.backward(gradient)  # adds to the stage's gradients
        if rank > 0:
            dist.send(inputs.grad, rank - 1)
    return sum(losses)


def main(rank, results):
    torch.manual_seed(0)  # the same weights in every process
    model = torch.nn.Sequential(
        *(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    loss = F.mse_loss(model(INPUTS), TARGETS)
    loss.backward()  # by one process, on the whole batch
    expected = [weight.grad for weight in model.parameters()]
    model.zero_grad()

    last, size = WORLD_SIZE - 1, LAYERS // WORLD_SIZE
    stage = model[size * rank : size * (rank + 1)]
    found = gpipe(stage, rank, last)
    pairs = zip(expected, model.parameters(), strict=True)
    differences = [
        largest(gradient - weight.grad)
        for gradient, weight in pairs if weight.grad is not None]
    results[rank] = torch.tensor(
        [max(differences), len(differences) / 2, abs(found - loss.detach())])


def worker(rank, port, results):
    store = dist.TCPStore("localhost", port)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORLD_SIZE,
        timeout=datetime.timedelta(seconds=60))  # if a bug makes it hang
    try:
        main(rank, results)
        dist.barrier()  # wait until every rank is done
    finally:
        dist.destroy_process_group()


def largest(difference):
    return difference.abs().max().item()


def check(holds, finding):
    if not holds:
        sys.exit(f"FAILED: {finding}")
    print(finding)


if __name__ == "__main__":
    if LAYERS % WORLD_SIZE:
        sys.exit(f"NPROC is {WORLD_SIZE}, but must divide {LAYERS} layers")
    # Shared by all processes: difference, layers, difference of the loss.
    results = torch.zeros(WORLD_SIZE, 3).share_memory_()
    store = dist.TCPStore("localhost", 0, is_master=True)  # 0: any free port
    mp.spawn(worker, args=(store.port, results), nprocs=WORLD_SIZE)

    for rank, (difference, layers, _) in enumerate(results):
        check(
            difference < 1e-7 and layers == LAYERS // WORLD_SIZE,
            f"Stage {rank}: {layers:.0f} layers, gradients differ by "
            f"{difference:.0e} from one process")
    check(results[-1, 2] < 1e-6, f"Loss: differs by {results[-1, 2]:.0e}")
