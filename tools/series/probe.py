"""Print two lines when a training process ends: what it did that its own output cannot show.

    probe | rank 1 of 2 | started by mp.spawn | share 2 of 2
    probe | gradients averaged in 1 all-reduce | loss summed | group left | weights -0.117394271

Facts that few scripts have, such as broadcasts or a part of the optimizer's state, are added where
they occur.

torch calls `watch` at the end of its import, because launch.watch adds an entry point for it
(docs.pytorch.org: "Autoloading out-of-tree extension"). See tools/series/observe.py.
"""

import atexit
import functools
import os
import signal
import threading
import weakref
from collections import Counter

FAULT = "SERIES_FAULT"  # "kill:EPOCHS" or "raise:0": what, and after how many epochs or steps
MESSAGE = "an error that the probe has put in"


def watch():
    import torch
    import torch.distributed as dist
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.nn.parallel import DistributedDataParallel
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils.data import DataLoader

    process = _Process(torch, dist)
    register_optimizer_step_post_hook(process.stepped)
    DataLoader.__iter__ = _before(DataLoader.__iter__, process.epoch_begins)
    DistributedDataParallel.__init__ = _before(
        DistributedDataParallel.__init__, process.model_is_wrapped
    )
    register_module_forward_pre_hook(process.called)
    dist.all_reduce = _before(dist.all_reduce, process.reduced)
    torch.profiler.profile.export_chrome_trace = _before(
        torch.profiler.profile.export_chrome_trace, process.trace_is_written
    )
    dist.broadcast = _before(dist.broadcast, process.broadcasts)
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
        self.optimizers = {}  # all that stepped: one may wrap another
        self.stepped_by = Counter()  # how often each of them did
        self.model, self.hook, self.validated = None, None, 0
        self.calls, self.passes = Counter(), ""  # of each module since the last step
        self.in_threads = ""
        self.reductions = Counter()  # how many all-reduces had this many numbers
        self.widths = {}  # bytes per number in those
        self.traced = None  # all-reduces in the profiler's trace
        self.broadcast = 0  # how often the script called it
        self.fault, _, spared = os.environ.get(FAULT, "").partition(":")
        self.spared = int(spared or 0)

    def model_is_wrapped(self, model, *_):
        self.model = weakref.ref(model)

    def reduced(self, tensor, *_):
        self.loss = "loss summed"
        self.reductions[tensor.numel()] += 1
        self.widths[tensor.numel()] = tensor.element_size()

    def trace_is_written(self, profiler, *_):
        counts = [e.count for e in profiler.key_averages() if e.key.endswith(":all_reduce")]
        self.traced = sum(counts)

    def called(self, module, _):
        self.calls[id(module)] += 1  # not the module: kept, it would outlive its group
        if threading.current_thread() is not threading.main_thread():
            self.in_threads = ", in threads"

    def broadcasts(self, *_):
        self.broadcast += 1

    def epoch_begins(self, loader):
        if not self.torch.is_grad_enabled():
            self.validated = len(loader.sampler)
            return
        self.epochs, self.steps = self.epochs + 1, 0
        sampler, total = loader.sampler, len(loader.dataset)
        ranks, number = (getattr(sampler, name, None) for name in ("num_replicas", "num_samples"))
        self.share = f"share {sampler.rank + 1} of {ranks}" if ranks else "all samples"
        if not ranks and number and number < total and sampler.generator:
            state = sampler.generator.get_state()
            self.share = f"{number} of {total} samples, first {next(iter(sampler))}"
            sampler.generator.set_state(state)

    def stepped(self, optimizer, *_):
        self.optimizer, self.steps = optimizer, self.steps + 1
        passes = max(self.calls.values(), default=0)
        if passes > 1 and not self.model:
            self.passes = f"{passes} forward passes per step{self.in_threads}"
        self.calls.clear()
        self.optimizers[id(optimizer)] = optimizer
        self.stepped_by[id(optimizer)] += 1
        model = self.model and self.model()
        if model and model.require_backward_grad_sync:  # or it averages none
            facts = model._get_ddp_logging_data()
            # One all-reduce per bucket; DDP rebuilds the buckets in the first steps.
            number, self.hook = facts.get("num_buckets_reduced", 1), facts.get("comm_hook")
            self.gradients = f"gradients averaged in {number} all-reduce{'s' * (number > 1)}"
        if self.dist.is_initialized():
            self.rank = f"rank {self.dist.get_rank()} of {self.dist.get_world_size()}{self.met()}"
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

    def met(self):
        """By which store the ranks met, if not by the usual one."""
        store = self.dist.distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        name = type(store).__name__
        return "" if name == "TCPStore" else f", met by {name}"

    def tell(self):
        if self.optimizer is None:
            return
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        weights = sum(p.detach().double().sum().item() for p in parameters)
        first = [self.rank, f"started by {self.starter()}"]
        first += [self.share] if self.share else []
        first += [f"validated {self.validated}"] if self.validated else []
        first += [self.passes] if self.passes else []
        if len(counts := {*self.stepped_by.values()}) > 1:
            first.append(f"optimizers made {' and '.join(map(str, sorted(counts)[::-1]))} steps")
        first += self.part_of_state(parameters)
        first += [] if self.traced is None else [f"traced {self.traced} all-reduces"]
        second = [self.gradients, self.loss, self.group(), f"weights {weights:.9f}"]
        size, times = max(self.reductions.items(), default=(0, 0))
        if size > 2 and second[0] == "gradients its own":  # those of the loss have two
            second[0] = f"{times} all-reduce{'s' * (times > 1)} of {size} numbers"
        elif size > 2 and self.hook:
            second[0] += f" of {size * self.widths[size]} bytes by {self.hook}"
        if self.broadcast:
            first.append(f"{self.broadcast} broadcast{'s' * (self.broadcast > 1)}")
        lines = [f"probe | {' | '.join(facts)}\n" for facts in (first, second)]
        os.write(1, "".join(lines).encode())  # one write: lines of processes never mix

    def part_of_state(self, parameters):
        """How much optimizer state this rank has, if it has none for some of the parameters."""
        states = [pair for one in self.optimizers.values() for pair in one.state.items() if pair[1]]
        if not 0 < len({id(parameter) for parameter, _ in states}) < len(parameters):
            return []
        tensors = [value for _, state in states for value in state.values() if value.dim()]
        size = sum(tensor.numel() for tensor in tensors)
        return [f"optimizer state of {size} number{'s' * (size > 1)}"]

    def starter(self):
        if "TORCHELASTIC_RUN_ID" in os.environ:
            return "torchrun"
        return "mp.spawn" if self.torch.multiprocessing.parent_process() else "you"

    def group(self):
        if self.rank == "no rank":
            return "no group"
        return "group not left" if self.dist.is_initialized() else "group left"
