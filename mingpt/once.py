"""Work that one process per node does for the others."""

import os
import platform
from datetime import timedelta

import torch.distributed as dist


def run_once_per_node(function, *args):
    """Call `function(*args)` in the first process of every node while the other processes wait.

    Nodes share no disk, so each needs its own result. Every rank returns what the call returned on
    its node. If the call raises on any node, every rank raises that exception: no rank waits for a
    file that will never exist. The call may take up to a day.
    """
    # Its own group, because other groups time out after 10 (NCCL) or 30 minutes (gloo).
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))
    first = int(os.environ["LOCAL_RANK"]) == 0
    result = error = None
    if first:
        try:
            result = function(*args)
        except Exception as raised:
            error = raised
    # Compare nodes by name, because launchers number ranks in different orders.
    node, outcomes = platform.node(), [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, (node, first, result, error), group=group)
    dist.destroy_process_group(group)
    for *_, error in outcomes:
        if error is not None:
            raise error
    if first:
        return result  # not a namesake's, if two nodes have the same name
    return next(made for at, made_it, made, _ in outcomes if made_it and at == node)
