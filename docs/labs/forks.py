"""Train scripts one after the other, each on N ranks: forks of one process that has imported torch.

    python docs/labs/forks.py 1,2,4 multinode.py 4 4

The ranks train like those of `torchrun --nproc_per_node=N multinode.py 4 4`. torchrun would import
torch in every rank of every script. The checkpoint of multinode.py on 2 ranks is multinode_2.pt.
"""

import multiprocessing
import os
import runpy
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
import torch._dynamo  # noqa: F401 - else the optimizer of every rank imports it
from torch.distributed import TCPStore


def train(script, arguments, rank, world_size, port):
    of_torchrun = {
        "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size,
        "MASTER_ADDR": "localhost", "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0,
    }  # fmt: skip
    os.environ |= {name: str(value) for name, value in of_torchrun.items()}
    sys.argv = [script, *arguments, "--checkpoint_path", f"{Path(script).stem}_{world_size}.pt"]
    sys.path.insert(0, ".")
    runpy.run_path(script, run_name="__main__")


scripts = [word for word in sys.argv[2:] if word.endswith(".py")]
arguments = [word for word in sys.argv[2:] if word not in scripts]
context = multiprocessing.get_context("fork")
for script in scripts:
    for world_size in map(int, sys.argv[1].split(",")):
        print(f"{script}, {world_size} {'rank' if world_size == 1 else 'ranks'}:", flush=True)
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        ranks = [
            context.Process(
                target=train, args=(script, arguments, rank, world_size, store.port), daemon=True
            )
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            if rank.exitcode:
                sys.exit(f"a rank of {script} ended with status {rank.exitcode}")
