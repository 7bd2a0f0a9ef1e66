"""Print two lines when a training process ends: what it did that its own output cannot show.

    probe | rank 1 of 2 | started by mp.spawn | share 2 of 2
    probe | gradients averaged in 1 all-reduce | loss summed | group left | weights -0.117394271

Facts that few scripts have, such as broadcasts or a part of the optimizer's state, are added where
they occur. torch calls `watch` at the end of its import, because launch.watch adds an entry point
for it (docs.pytorch.org: "Autoloading out-of-tree extension").
"""

import atexit
import functools
import os
import signal
import sys
import threading
import weakref
from collections import Counter

FAULT = "SERIES_FAULT"  # "kill:EPOCHS" or "raise:0": what, and after how many epochs or steps
MESSAGE = "an error that the probe has put in"


def watch():
    import torch
    import torch.distributed as dist
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    process = _Process(torch, dist)
    register_optimizer_step_post_hook(process.stepped)
    register_module_forward_pre_hook(process.called)
    for owner, name, note in (
        (torch.utils.data.DataLoader, "__iter__", process.epoch_begins),
        (torch.nn.parallel.DistributedDataParallel, "__init__", process.model_is_wrapped),
        (torch.profiler.profile, "export_chrome_trace", process.trace_is_written),
        (dist, "all_reduce", process.reduced),
        (dist, "broadcast", process.broadcasts),
        (dist, "all_gather", functools.partial(process.sends, "all-gather")),
        (dist, "all_to_all_single", functools.partial(process.sends, "all-to-all")),
        (dist, _scatter(dist), process.scatters),
        (dist, "reduce_scatter", process.scatters),
    ):
        setattr(owner, name, _before(getattr(owner, name), note))
    atexit.register(process.tell)


def _scatter(module):
    """The name of a function of torch.distributed: it is another one since torch 2.13."""
    new = "reduce_scatter_single"
    return new if hasattr(module, new) else "reduce_scatter_tensor"


def _before(function, note):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        note(*args)
        return function(*args, **kwargs)

    return wrapped


def _count(number, noun):
    return f"{number} {noun}{'s' * (number > 1)}"


class _Process:
    def __init__(self, torch, dist):
        self.torch, self.dist, self.facts = torch, dist, {}  # the facts for the first line
        self.rank, self.gradients, self.loss = "no rank", "gradients its own", "loss its own"
        self.optimizer = None  # the last one that stepped
        self.optimizers, self.stepped_by = {}, Counter()  # all that stepped: one may wrap another
        self.epochs, self.steps, self.broadcast, self.scattered = 0, 0, 0, 0
        self.sent = Counter()  # other collectives, while the model computes
        self.model, self.hook = lambda: None, None
        self.kept, self.saver, self.functional = "", None, None
        self.root = lambda: None  # the module that was called first since the last step
        self.calls, self.in_threads = Counter(), ""  # of each module since the last step
        self.reductions = {}  # by how many numbers an all-reduce had: how often, bytes per number
        self.fault, _, spared = os.environ.get(FAULT, "").partition(":")
        self.spared = int(spared or 0)

    def model_is_wrapped(self, model, *_):
        self.model = weakref.ref(model)

    def reduced(self, tensor, *_):
        self.loss, size = "loss summed", tensor.numel()
        self.reductions[size] = (self.reductions.get(size, (0,))[0] + 1, tensor.element_size())

    def trace_is_written(self, profiler, *_):
        counts = [e.count for e in profiler.key_averages() if e.key.endswith(":all_reduce")]
        self.facts["trace"] = f"traced {sum(counts)} all-reduces"

    def called(self, module, inputs):
        functional = sys.modules.get("torch.distributed._functional_collectives")
        if functional and not self.functional:  # few scripts import it, and it takes long
            self.functional = functional  # DTensor calls it
            name = _scatter(functional)
            setattr(functional, name, _before(getattr(functional, name), self.scatters))
        aside = threading.current_thread() is not threading.main_thread()
        if not self.calls and not aside:
            self.root = weakref.ref(module)
            config = getattr(getattr(module, "module", module), "config", None)
            if config and inputs[0].size(1) < config.block_size:  # a GPT
                self.facts["reads"] = f"reads {inputs[0].size(1)} of {config.block_size} tokens"
        # Not the module: kept, it would outlive its group. In threads, each calls its own copy.
        self.calls[type(module) if aside else id(module)] += 1
        if aside:
            self.in_threads = ", in threads"

    def broadcasts(self, *_):
        self.broadcast += 1

    def sends(self, what, *_):
        self.sent[what] += bool(self.calls and self.root() and self.root().training)

    def scatters(self, *_):
        self.scattered += 1

    def epoch_begins(self, loader):
        sampler, total = loader.sampler, len(loader.dataset)
        if not self.torch.is_grad_enabled():
            self.facts["validated"] = f"validated {len(sampler)}"
            return
        self.epochs, self.steps = self.epochs + 1, 0
        ranks, number = (getattr(sampler, name, None) for name in ("num_replicas", "num_samples"))
        share = f"share {sampler.rank + 1} of {ranks}" if ranks else "all samples"
        if not ranks and number and number < total and sampler.generator:
            state = sampler.generator.get_state()
            share = f"{number} of {total} samples, first {next(iter(sampler))}"
            sampler.generator.set_state(state)
        self.facts["share"] = share

    def saves_meanwhile(self, *_):
        self.facts["saves"] = "saves in the background"

    def stepped(self, optimizer, *_):
        self.optimizer, self.steps = optimizer, self.steps + 1
        if not self.saver and (saver := sys.modules.get("torch.distributed.checkpoint")):
            self.saver = saver  # few scripts import it, and it takes long
            saver.async_save = _before(saver.async_save, self.saves_meanwhile)
        passes = max(self.calls.values(), default=0)
        model = self.model()
        if model and passes > self.calls[id(model)]:
            self.facts["again"] = "computes blocks again"
        if passes > 1 and not model:
            self.facts["passes"] = f"{passes} forward passes per step{self.in_threads}"
        self.calls.clear()
        self.counts(optimizer)
        self.optimizers[id(optimizer)] = optimizer
        self.stepped_by[id(optimizer)] += 1
        if model and model.require_backward_grad_sync:  # or it averages none
            facts = model._get_ddp_logging_data()
            # One all-reduce per bucket; DDP rebuilds the buckets in the first steps.
            number, self.hook = facts.get("num_buckets_reduced", 1), facts.get("comm_hook")
            self.gradients = f"gradients averaged in {_count(number, 'all-reduce')}"
        if self.dist.is_initialized():
            self.rank = f"rank {self.dist.get_rank()} of {self.dist.get_world_size()}{self.met()}"
        if self.fault and self.is_due():
            if self.fault == "raise":
                raise RuntimeError(MESSAGE)
            os.kill(os.getpid(), signal.SIGKILL)

    def counts(self, optimizer):
        """What it keeps until the next step, if the optimizer updates tensors beside the model's:
        the numbers in memory, each once.
        """
        model = [*self.root().parameters()] if self.root() else []
        own = [p for group in optimizer.param_groups for p in group["params"] if not p.is_meta]
        if not model or {*map(id, own)} <= {*map(id, model)}:
            return
        state = [value for values in optimizer.state.values() for value in values.values()]
        numbers = []
        for tensors in (model + own, [p.grad for p in model + own if p.grad is not None], state):
            storages = [tensor.untyped_storage() for tensor in tensors]
            sizes = {storage.data_ptr(): storage.nbytes() // 4 for storage in storages}
            numbers.append(sum(sizes.values()))
        told = ", keeps {} weights, {} gradients, {} of state"
        self.kept = told.format(*numbers)

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
        shards = [getattr(p, "_local_tensor", p).detach() for p in parameters if not p.is_meta]
        weights = sum(shard.double().sum().item() for shard in shards)
        held, size = (sum(one.numel() for one in ones) for ones in (shards, parameters))
        if held < size:
            self.facts["shards"] = f"holds {held} of {size} weights"
        for what, times in self.sent.items():
            if each := times // max(self.stepped_by.values()):
                self.facts[what] = f"{_count(each, what)} per step"
        if self.scattered:
            number = self.scattered // max(self.stepped_by.values())
            self.gradients = f"{_count(number, 'reduce-scatter')} per step"
            if large := sum(times for size, (times, _) in self.reductions.items() if size > 2):
                each = large // max(self.stepped_by.values())
                self.gradients = f"{self.gradients[:-9]} and {_count(each, 'all-reduce')} per step"
        if len(counts := {*self.stepped_by.values()}) > 1:
            steps = " and ".join(map(str, sorted(counts, reverse=True)))
            self.facts["steps"] = f"optimizers made {steps} steps"
        states = [pair for one in self.optimizers.values() for pair in one.state.items() if pair[1]]
        if 0 < len({id(parameter) for parameter, _ in states}) < len(parameters):
            tensors = [value for _, state in states for value in state.values() if value.dim()]
            size = sum(tensor.numel() for tensor in tensors)
            self.facts["state"] = f"optimizer state of {_count(size, 'number')}"
        if self.torch.are_deterministic_algorithms_enabled():
            self.facts["algorithms"] = "deterministic algorithms"
        if self.broadcast:
            self.facts["broadcast"] = _count(self.broadcast, "broadcast")
        size = max(self.reductions, default=0)
        if size > 2:  # those of the loss have two
            times, width = self.reductions[size]
            if self.gradients == "gradients its own":
                self.gradients = f"{_count(times, 'all-reduce')} of {size} numbers"
            elif self.hook:
                self.gradients += f" of {size * width} bytes by {self.hook}"
        started = "torchrun" if "TORCHELASTIC_RUN_ID" in os.environ else "you"
        if started == "you" and self.torch.multiprocessing.parent_process():
            started = "mp.spawn"
        group = "no group" if self.rank == "no rank" else "group left"
        group = "group not left" if self.dist.is_initialized() else group
        lines = [self.rank + self.kept, f"started by {started}", *self.facts.values()], [
            self.gradients, self.loss, group, f"weights {weights:.9f}"
        ]  # fmt: skip
        text = "".join(f"probe | {' | '.join(facts)}\n" for facts in lines)
        os.write(1, text.encode())  # one write: lines of processes never mix
