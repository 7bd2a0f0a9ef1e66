"""The loss does not depend on the parameters of one layer."""

import torch
import two
from torch.nn.parallel import DistributedDataParallel as DDP


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(4, 4)
        if not two.FIXED:
            self.old_head = torch.nn.Linear(4, 1)  # forward() never calls it
        self.head = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x))


def main(rank):
    model = DDP(Model())
    for step in range(2):
        model(torch.rand(8, 4)).sum().backward()
        two.say(rank, f"step {step} done")


if __name__ == "__main__":
    two.run(main)
