"""Print two lines when a training process ends: what it did that its own output cannot show.

    probe | rank 1 of 2 | started by mp.spawn | share 2 of 2
    probe | gradients averaged in 1 all-reduce | loss summed | group left | weights -0.117394271

torch calls `watch` at the end of its import, because launch.watch adds an entry point for it
(docs.pytorch.org: "Autoloading out-of-tree extension"). See tools/series/observe.py.
"""

import atexit
import functools
import os
import signal
import weakref

FAULT = "SERIES_FAULT"  # "kill:EPOCHS" or "raise:0": what, and after how many epochs or steps
MESSAGE = "an error that the probe has put in"


def watch():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import DataLoader

    process = _Process(torch, dist)
    register_optimizer_step_post_hook(process.stepped)
    DataLoader.__iter__ = _before(DataLoader.__iter__, process.epoch_begins)
    DistributedDataParallel.__init__ = _before(
        DistributedDataParallel.__init__, process.model_is_wrapped
    )
    dist.all_reduce = _before(dist.all_reduce, process.reduced)
    atexit.register(process.tell)


def _before(function, note):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        note(*args)
        return function(*args, **kwargs)

    return wrapped


class _Process:
    def __init__(self, torch, dist):
        self.torch, self.dist = torch, dist
        self.rank, self.share = "no rank", None  # a share that this probe does not know
        self.gradients, self.loss = "gradients its own", "loss its own"
        self.optimizer, self.epochs, self.steps = None, 0, 0
        self.model, self.validated = None, 0
        self.fault, _, spared = os.environ.get(FAULT, "").partition(":")
        self.spared = int(spared or 0)

    def model_is_wrapped(self, model, *_):
        self.model = weakref.ref(model)

    def reduced(self, *_):
        self.loss = "loss summed"

    def epoch_begins(self, loader):
        if not self.torch.is_grad_enabled():
            self.validated = len(loader.sampler)
            return
        self.epochs, self.steps = self.epochs + 1, 0
        ranks = getattr(loader.sampler, "num_replicas", None)
        self.share = f"share {loader.sampler.rank + 1} of {ranks}" if ranks else "all samples"

    def stepped(self, optimizer, *_):
        self.optimizer, self.steps = optimizer, self.steps + 1
        if self.model:  # one all-reduce per bucket; DDP rebuilds the buckets in the first steps
            number = self.model()._get_ddp_logging_data().get("num_buckets_reduced", 1)
            self.gradients = f"gradients averaged in {number} all-reduce{'s' * (number > 1)}"
        if self.dist.is_initialized():
            self.rank = f"rank {self.dist.get_rank()} of {self.dist.get_world_size()}"
        if self.fault and self.is_due():
            if self.fault == "raise":
                raise RuntimeError(MESSAGE)
            os.kill(os.getpid(), signal.SIGKILL)

    def is_due(self):
        """In the last rank, at the second step of an epoch: by then all ranks have made the first
        one, so the save before it is complete. A restarted run is not killed again.

        Without epochs, after the second save, because a save in a thread is complete by then.
        """
        if self.fault == "kill" and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            return False
        if int(os.environ.get("RANK", 0)) + 1 != int(os.environ.get("WORLD_SIZE", 1)):
            return False
        if self.epochs == 0:
            return self.steps == 2 * self.spared + 2
        return self.epochs > self.spared and self.steps == 2

    def tell(self):
        if self.optimizer is None:
            return
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        weights = sum(p.detach().double().sum().item() for p in parameters)
        first = [self.rank, f"started by {self.starter()}"]
        first += [self.share] if self.share else []
        first += [f"validated {self.validated}"] if self.validated else []
        second = [self.gradients, self.loss, self.group(), f"weights {weights:.9f}"]
        lines = [f"probe | {' | '.join(facts)}\n" for facts in (first, second)]
        os.write(1, "".join(lines).encode())  # one write: lines of processes never mix

    def starter(self):
        if "TORCHELASTIC_RUN_ID" in os.environ:
            return "torchrun"
        return "mp.spawn" if self.torch.multiprocessing.parent_process() else "you"

    def group(self):
        if self.rank == "no rank":
            return "no group"
        return "group not left" if self.dist.is_initialized() else "group left"
