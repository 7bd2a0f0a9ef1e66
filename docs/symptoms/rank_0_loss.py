"""DDP averages gradients, but each rank's loss covers only its own samples."""

import torch
import torch.distributed as dist
import two
from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank):
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(1, 1))
    source, targets = torch.ones(4, 1), torch.full((4, 1), 2.0 * rank)
    loss = torch.nn.functional.mse_loss(model(source), targets)
    loss.backward()
    totals = torch.stack([loss.detach() * len(source), torch.tensor(4.0)])
    if two.FIXED:
        dist.all_reduce(totals)
    two.say(rank, f"gradient {model.module.weight.grad.item():.3f}, "
                  f"loss {totals[0] / totals[1]:.3f} over {totals[1]:.0f}")


if __name__ == "__main__":
    two.run(main)
