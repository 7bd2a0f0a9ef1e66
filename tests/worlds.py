"""Run ranks as threads of this process, over the real gloo: a world costs no `import torch`.

This is the only file that knows torch's private names for it. Threads share what belongs to a
process: its random state, its signals and its working folder. A test of these needs processes.
"""

import os
import sys
import threading
import traceback
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=120)  # of a collective; it bounds a hang, on a busy machine, too
LIMIT = 600  # seconds of all


class _Environ(type(os.environ)):
    """In the thread of a rank, the launcher's variables are those of that rank."""

    rank = threading.local()

    def __getitem__(self, name):
        own = getattr(self.rank, "variables", {})
        return own[name] if name in own else super().__getitem__(name)


def world(size, work, nodes=1):
    """Call `work(rank)` in `size` threads that are one process group; returns what they return.

    The ranks are on `nodes` nodes. The first exception of a rank is raised here.
    """
    try:
        from torch.testing._internal.distributed import multi_threaded_pg as threaded

        isolate = torch._C._distributed_c10d._set_thread_isolation_mode
        install, uninstall = threaded._install_threaded_pg, threaded._uninstall_threaded_pg
    except (ImportError, AttributeError) as error:
        pytest.skip(f"this torch has no process groups per thread: {error}")
    store, results, errors = dist.HashStore(), [None] * size, []

    def be(rank):
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        numbers = (rank, size, rank % (size // nodes), size // nodes)
        _Environ.rank.variables = dict(zip(names, map(str, numbers), strict=True))
        torch.set_num_threads(1)
        options = {"store": store, "rank": rank, "world_size": size, "timeout": TIMEOUT}
        dist.init_process_group("gloo", **options)
        try:
            results[rank] = work(rank)
            dist.barrier()
        except BaseException as error:
            errors.append(error)
        finally:
            dist.destroy_process_group()  # after an error, the other ranks time out

    before, threads = torch.get_num_threads(), []
    isolate(True)
    install()
    os.environ.__class__ = _Environ
    try:
        for rank in range(size):
            threads.append(threading.Thread(target=be, args=(rank,), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join(LIMIT)
    finally:
        os.environ.__class__ = _Environ.__base__
        uninstall()
        isolate(False)
        torch.set_num_threads(before)
    if errors:
        raise errors[0]
    frames = sys._current_frames()
    hanging = [traceback.format_stack(frames[one.ident]) for one in threads if one.is_alive()]
    assert not hanging, "".join(hanging[0])
    return results
