"""A checkpoint of the DDP wrapper does not load into the plain model."""

import io

import torch
import two
from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank):
    model = DDP(torch.nn.Linear(4, 1))
    file = io.BytesIO()
    saved = model.module if two.FIXED else model
    torch.save(saved.state_dict(), file)
    file.seek(0)
    torch.nn.Linear(4, 1).load_state_dict(torch.load(file))
    two.say(rank, "loaded into a model without DDP")


if __name__ == "__main__":
    two.run(main, world_size=1)
