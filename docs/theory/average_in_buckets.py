"""Send gradients in buckets, while backward() computes the next ones.

    python docs/theory/average_in_buckets.py

Runs two CPU processes over gloo, with or without GPUs. NPROC=4 starts four.
"""

import copy
import os
import sys

import torch
import torch._dynamo  # a later import would keep the group's threads alive
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD_SIZE = int(os.environ.get("NPROC", 2))
BUCKET_BYTES = 8 * 1024  # DDP: 1 MiB for the first bucket, then 25 MiB

torch.manual_seed(0)  # the same data in every process, 16 samples per rank
INPUTS = torch.randn(16 * WORLD_SIZE, 32)
TARGETS = INPUTS.sin()


class OurDDP:
    def __init__(self, model):
        self.parameters = list(model.parameters())
        for tensor in model.state_dict().values():  # weights and buffers
            dist.broadcast(tensor, src=0)
        self.arrived = []  # parameters, in the order their gradients arrive
        self.under_way = []  # all-reduces to wait for
        self.bucket_of, bucket = {}, []
        for parameter in reversed(self.parameters):  # as backward() goes
            bucket.append(parameter)
            self.bucket_of[parameter] = bucket
            if sum(member.nbytes for member in bucket) >= BUCKET_BYTES:
                bucket = []  # full: start the next bucket
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(self._gradient_ready)

    def _gradient_ready(self, parameter):
        """Autograd calls this as soon as `parameter` has its gradient."""
        self.arrived.append(parameter)
        bucket = self.bucket_of[parameter]
        if any(member.grad is None for member in bucket):  # one is missing
            return
        gradient = torch.cat([member.grad.flatten() for member in bucket])
        parts = gradient.split([member.numel() for member in bucket])
        for member, part in zip(bucket, parts, strict=True):
            member.grad = part.view_as(member)  # a view: nothing to copy back
        work = dist.all_reduce(gradient, async_op=True)
        self.under_way.append((gradient, work))

    def average_gradients(self):
        """Call this after backward() and before optimizer.step()."""
        self.sizes = [gradient.nbytes for gradient, _ in self.under_way]
        for gradient, work in self.under_way:
            work.wait()
            # Mean, not sum: a sum would act like a larger learning rate.
            gradient /= WORLD_SIZE
        self.under_way.clear()


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def main(rank, results):
    torch.manual_seed(rank)  # on purpose: every rank draws different weights
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(6)))
    drawn = weights(model)
    ddp = DDP(copy.deepcopy(model))
    ours = OurDDP(model)
    alone = copy.deepcopy(model)  # trains on the whole batch, sends nothing
    parameters = [p for m in (model, ddp, alone) for p in m.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    mine = slice(16 * rank, 16 * (rank + 1))
    for step in range(4):
        results[step, :, rank] = torch.stack(
            [drawn, weights(model), weights(ddp), weights(alone)])
        optimizer.zero_grad()
        F.mse_loss(model(INPUTS[mine]), TARGETS[mine]).backward()
        ours.average_gradients()
        F.mse_loss(ddp(INPUTS[mine]), TARGETS[mine]).backward()
        F.mse_loss(alone(INPUTS), TARGETS).backward()
        optimizer.step()
    if rank == 0:
        names = {p: name for name, p in model.named_parameters()}
        order = [names[p] for p in ours.arrived[:len(names)]]
        print("Gradients arrive:", *order[:4], "...", order[-1])
        count, size = len(ours.sizes), sum(ours.sizes)
        print(f"Each step: {count} all-reduces, {size:,} bytes in all")


def worker(rank, port, results):
    store = dist.TCPStore("localhost", port)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORLD_SIZE)
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
    # Shared by all processes; indexed by [step, model, rank, weight].
    results = torch.zeros(4, 4, WORLD_SIZE, 6 * 33 * 32).share_memory_()
    store = dist.TCPStore("localhost", 0, is_master=True)  # 0: any free port
    mp.spawn(worker, args=(store.port, results), nprocs=WORLD_SIZE)

    apart = largest(results[0, 0] - results[0, 0, 0])
    check(apart > 0, f"Drawn from different seeds: {apart:.3f} between ranks")
    # DDP divides, then sums. For two processes that gives the same bits.
    tolerance = 0 if WORLD_SIZE == 2 else 1e-6
    for step, (_, ours, ddp, alone) in enumerate(results):
        apart, from_ddp = largest(ours - ours[0]), largest(ours - ddp)
        from_alone = largest(ours - alone)
        check(
            apart == 0 and from_ddp <= tolerance and from_alone < 1e-6,
            f"Step {step}: weights differ by {apart:g} between ranks, by "
            f"{from_ddp:g} from DDP, by {from_alone:.0e} from one process")

    # Shares must be equal, because a mean of means weighs ranks, not samples.
    losses = (INPUTS - TARGETS).square().mean(dim=1)  # of an identity model
    for cut in (len(losses) // 2, 4):
        means = [share.mean() for share in losses.tensor_split([cut])]
        print(
            f"Shares of {cut} and {len(losses) - cut}: mean of means "
            f"{sum(means) / 2:.4f}, mean {losses.mean():.4f}")
