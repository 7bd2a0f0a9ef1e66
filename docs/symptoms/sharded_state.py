"""Only rank 0 asks for the whole weights of a sharded model, to save them."""

import torch
import two
from torch.distributed.checkpoint import state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn import Linear

WHOLE = state_dict.StateDictOptions(full_state_dict=True, cpu_offload=True)


def main(rank):
    model = fully_shard(Linear(4, 4))
    model(torch.rand(8, 4)).sum().backward()
    if two.FIXED:
        weights = state_dict.get_model_state_dict(model, options=WHOLE)
    if rank == 0:
        if not two.FIXED:
            weights = state_dict.get_model_state_dict(model, options=WHOLE)
        two.say(rank, f"saves {sum(one.numel() for one in weights.values())}")


if __name__ == "__main__":
    two.run(main, timeout=2)
