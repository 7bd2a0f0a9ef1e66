"""What one process does for all: `run_on_main`, as SpeechBrain calls it."""

import os
import platform
from datetime import timedelta

import torch.distributed as dist


def run_on_main(function, *args):
    """Call `function(*args)` in the first process of every node while the others wait.

    Once a node, because nodes share no disk. Returns, on every rank, what it returned on this
    rank's node; raises, on every rank, what it raised on any node. So no rank waits for a file that
    will never come; for one that takes hours it does, up to a day.
    """
    # Its own: the others' patience is ten minutes with NCCL, half an hour with gloo.
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))
    first = int(os.environ["LOCAL_RANK"]) == 0
    result = error = None
    if first:
        try:
            result = function(*args)
        except Exception as raised:
            error = raised
    # By name: a launcher may number ranks node by node, or deal them out in turn.
    node, outcomes = platform.node(), [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, (node, first, result, error), group=group)
    dist.destroy_process_group(group)
    for *_, error in outcomes:
        if error is not None:
            raise error
    if first:
        return result  # its own, should two nodes have one name
    return next(made for at, made_it, made, _ in outcomes if made_it and at == node)
