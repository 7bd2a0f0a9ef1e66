"""Work that one process does for the others: one in all, or one per node."""

import os
import pickle
import platform
from datetime import timedelta

import torch.distributed as dist


def run_on_main(function, *args):
    """Call `function(*args)` on rank 0 while the other ranks wait. All return what it returned.

    If the call raises, every rank raises that exception, or one with its text if `pickle` cannot
    send it. The call may take up to a day.
    """
    first = dist.get_rank() == 0
    result, outcomes = _call(first, function, args)
    return result if first else outcomes[0][2]


def run_once_per_node(function, *args):
    """Call `function(*args)` in the first process of every node while the other processes wait.

    Nodes may share no disk, so each makes its own result. Every rank returns what the call returned
    on its node. If the call raises on any node, every rank raises, as above: no rank waits for a
    file that will never exist. The call may take up to a day.
    """
    first, node = int(os.environ["LOCAL_RANK"]) == 0, platform.node()
    result, outcomes = _call(first, function, args)
    if first:
        return result  # its own, even if two nodes have one name
    # Compare nodes by name, because launchers number ranks in different orders.
    return next(made for at, called, made, _ in outcomes if called and at == node)


def _call(first, function, args):
    """Call it if `first`. Returns its result, and (node, first, result, error) of every rank."""
    # Its own group, because other groups time out after 10 (NCCL) or 30 minutes (gloo).
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))
    result = error = None
    if first:
        try:
            result = function(*args)
        except Exception as raised:
            error = raised
            try:
                pickle.loads(pickle.dumps(raised))
            except Exception:  # an HTTPError, for one, holds a connection
                error = RuntimeError(repr(raised))
    outcomes = [None] * dist.get_world_size()
    dist.all_gather_object(outcomes, (platform.node(), first, result, error), group=group)
    dist.destroy_process_group(group)
    for *_, error in outcomes:
        if error is not None:
            raise error
    return result, outcomes
