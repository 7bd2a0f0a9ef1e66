"""Train a larger model with several hooks, and compare them with DDP.

    OMP_NUM_THREADS=1 torchrun --standalone --nproc_per_node=2 \
    -m docs.labs.comm_hooks

The model has three linear layers, 20 -> 64 -> 64 -> 1, with ReLU between them.
"bytes": what a rank passes to dist.all_reduce in the last of 200 steps.
"from DDP": the largest difference of a weight from training without a hook.
"loss": over all samples, after the last step.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel as DDP

import utils
from beyond.comm_hooks import average_hook

STEPS, BATCH = 200, 32
bytes_sent = 0
all_reduce = dist.all_reduce


def counted(tensor, *args, **kwargs):
    global bytes_sent
    bytes_sent += tensor.nbytes
    return all_reduce(tensor, *args, **kwargs)


def float32_hook(state, bucket):
    sent = bucket.buffer() / dist.get_world_size()
    future = dist.all_reduce(sent, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def power_sgd(feedback=True):
    return PowerSGDState(
        None,  # the group of all ranks
        matrix_approximation_rank=1,
        start_powerSGD_iter=10,  # before that, an ordinary all-reduce
        use_error_feedback=feedback,
    )


def train(state=None, hook=None):
    """Returns the weights, the bytes of the last step, and the loss."""
    global bytes_sent
    torch.manual_seed(0)
    model = DDP(torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 1),
    ))  # fmt: skip
    if hook:
        model.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    order = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        shape = dist.get_world_size(), BATCH  # a row of samples per rank
        chosen = torch.randint(len(data), shape, generator=order)
        mine = chosen[dist.get_rank()]
        optimizer.zero_grad()
        bytes_sent = 0
        F.mse_loss(model(data.features[mine]), data.targets[mine]).backward()
        optimizer.step()
    weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    with torch.no_grad():
        loss = F.mse_loss(model.module(data.features), data.targets).item()
    return weights, bytes_sent, loss


dist.init_process_group("gloo")
dist.all_reduce = counted
data = utils.MyTrainDataset()
rows = {
    "DDP without a hook": (None, None),
    "own hook, float32": (None, float32_hook),
    "own hook, bfloat16": (None, average_hook),
    "fp16_compress_hook": (None, default_hooks.fp16_compress_hook),
    "PowerSGD, rank 1": (power_sgd(), powerSGD_hook),
    "  without feedback": (power_sgd(feedback=False), powerSGD_hook),
}
if dist.get_rank() == 0:
    print(f"{'':18} | {'bytes':>6} | from DDP | loss")
for name, row in rows.items():
    weights, number, loss = train(*row)
    if name == "DDP without a hook":
        expected = weights
    distance = (weights - expected).abs().max().item()
    if dist.get_rank() == 0:
        bytes_ = f"{number:6,}" if number else "hidden"  # DDP's are in C++
        line = f"{name:18} | {bytes_} | {distance:8.1e} | {loss:.4f}"
        print(line, flush=True)
try:
    train(None, default_hooks.bf16_compress_hook)
except TypeError as error:
    if dist.get_rank() == 0:
        print(f"bf16_compress_hook | {error}")
dist.barrier()
dist.destroy_process_group()
