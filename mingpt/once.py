"""What one process does for all: `run_on_main`, as SpeechBrain calls it."""

import os

import torch.distributed as dist


def run_on_main(function, *args):
    """Call `function(*args)` in the first process of every node while the others wait.

    Once a node, because nodes share no disk. Returns, on every rank, what it returned on this
    rank's node; raises, on every rank, what it raised on any node. So no rank waits for a file that
    will never come. The wait is bounded by the timeout of the process group.
    """
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    result = error = None
    if local_rank == 0:
        try:
            result = function(*args)
        except Exception as raised:
            error = raised
    outcomes = [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, (result, error))
    for _, error in outcomes:
        if error is not None:
            raise error
    return outcomes[rank - local_rank][0]
