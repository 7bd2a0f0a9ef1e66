"""Run a script that says cuda and nccl on CPUs and gloo, unchanged.

torch.cuda claims to have GPUs (fake_cuda.py), and every CUDA device in a call becomes the CPU
(devices.py). Each kind of change is a fact. Two kinds of mistakes are invisible here: a tensor on
the wrong device, since `tensor.device` is always cpu and `tensor.is_cuda` always False, and a copy
that should be none, or the reverse, since `tensor.cuda()` returns the tensor itself.
"""

import contextlib
import functools
import inspect
import threading

import torch
import torch.distributed as dist
from _ddp_doctor import devices, fake_cuda, imports, places
from _ddp_doctor.devices import HALVES, OnCpu, in_mode, on_cpu, replacing, say, without_cuda
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import DataParallel, SyncBatchNorm
from torch.nn.attention import SDPBackend
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils._device import DeviceContext
from torch.utils._pytree import tree_map_only
from torch.utils.data.dataloader import _BaseDataLoaderIter as Iterator

AVERAGING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor",
             "reduce_scatter_single")  # fmt: skip
GATHERING = ("all_gather", "all_gather_into_tensor", "all_gather_single", "gather")


def watch():
    fake_cuda.install()
    OnCpu().__enter__()
    threading.Thread._bootstrap_inner = in_mode(threading.Thread._bootstrap_inner)
    torch.autograd._engine_run_backward = in_mode(torch.autograd._engine_run_backward)
    _map_devices()
    _map_precision()
    _map_wrappers()
    _map_groups()
    _map_averages()
    _map_gathers()


def _map_devices():
    torch.Generator = devices.Generator
    torch._C._nn._parse_to = without_cuda(torch._C._nn._parse_to, numbers=True)  # Module.to
    DeviceContext.__init__ = without_cuda(DeviceContext.__init__)  # torch.set_default_device
    DeviceMesh.__init__ = without_cuda(DeviceMesh.__init__)

    @replacing(torch, "get_device_module")
    def module(original, device=None):
        return original("cuda")

    @replacing(torch, "load")
    def load(original, f, map_location=None, *rest, **options):
        if map_location is None:
            return original(f, places.keep, *rest, **options)
        device = on_cpu(map_location)  # or a function, or a dict
        return original(f, device if str(device) == "meta" else "cpu", *rest, **options)

    @replacing(torch.nn.Module, "to")
    def to(original, self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        for device in [*args, *kwargs.values()]:
            if isinstance(device, str | torch.device) or type(device) is int:
                places.move(self, device, fake_cuda.current())
        return result

    @replacing(torch.nn.Module, "cuda")
    def cuda(original, self, device=None):
        original(self, device)
        places.move(self, "cuda" if device is None else device, fake_cuda.current())
        return self

    @replacing(Iterator, "__init__")
    def begin(original, self, *args, **kwargs):
        original(self, *args, **kwargs)
        if self._pin_memory:
            say("pin_memory ignored")
            self._pin_memory = False


def _map_precision():
    @replacing(torch.amp.autocast_mode.autocast, "__init__")
    def autocast(original, self, device_type, dtype=None, *rest, **options):
        device = on_cpu(device_type)
        if device != device_type and dtype in (None, torch.float16):
            say(HALVES)  # many CPUs are slow with float16
            dtype = torch.bfloat16
        original(self, device, dtype, *rest, **options)

    for name in ("custom_fwd", "custom_bwd"):
        mapped = without_cuda(getattr(torch.amp, name))
        setattr(torch.amp, name, mapped)
        setattr(torch.cuda.amp, name, functools.partial(mapped, device_type="cuda"))

    @replacing(torch.amp.GradScaler, "__init__")
    def scale(original, self, device="cuda", *rest, **options):
        original(self, on_cpu(device), *rest, **options)

    @replacing(torch.optim.Optimizer, "__init__")
    def optimize(original, self, params, defaults):
        if defaults.get("capturable"):
            say("capturable ignored")
            defaults["capturable"] = False
        original(self, params, defaults)

    @replacing(torch.nn.attention, "_sdpa_kernel")
    def choose(original, backends, *rest, **options):
        original([*backends, SDPBackend.MATH], *rest, **options)  # the others may not exist on CPUs

    @replacing(torch.autograd.profiler.profile, "__init__")
    def profile(original, self, *args, use_device=None, **options):
        original(self, *args, use_device=None if use_device == "cuda" else use_device, **options)


class Places(list):
    """A script reads where its model is. DDP asks only whether there are any, and moves nothing."""

    def __bool__(self):
        return False


def _map_wrappers():
    @replacing(DDP, "__init__")
    def ddp(original, self, module, device_ids=None, output_device=None, *rest, **options):
        if device_ids:
            say("device_ids ignored")
        original(self, module, None, None, *rest, **options)
        self.device_ids = device_ids and Places(device_ids)

    @replacing(DDP, "_check_comm_hook")
    def check(original, self, hook):
        if "bf16" not in hook.__name__:  # without CUDA, it refuses these
            original(self, hook)

    @replacing(DataParallel, "__init__")
    def data_parallel(original, self, module, *_, dim=0, **__):
        say("DataParallel → one replica")
        torch.nn.Module.__init__(self)
        self.module, self.device_ids, self.dim = module, [], dim

    @replacing(SyncBatchNorm, "__init__")
    def synchronize(original, self, *args, **kwargs):
        say("SyncBatchNorm → BatchNorm")
        original(self, *args, **kwargs)

    SyncBatchNorm.forward = _BatchNorm.forward
    DDP._passing_sync_batchnorm_handle = lambda *_: None  # refuses it on CPUs
    imports.after("torch.distributed.fsdp", _map_fsdp)


def _map_fsdp(fsdp):
    @replacing(fsdp.FullyShardedDataParallel, "__init__")
    def shard(original, self, *args, device_id=None, **options):
        original(self, *args, device_id=torch.device("cpu"), **options)

    # It copies whole weights to the CPU, and frees those on the GPU: here they are the same.
    fsdp._flat_param.FlatParamHandle.to_cpu = contextlib.nullcontext


def _map_groups():
    modules = (dist.distributed_c10d, dist.device_mesh)
    dist.is_nccl_available = lambda: True

    @replacing(dist, "init_process_group", *modules)
    def join(original, backend=None, *rest, device_id=None, **options):
        backend = _gloo_for(backend, options)
        return original("gloo" if backend is None else backend, *rest, **options)

    @replacing(dist, "new_group", *modules)
    def group(original, ranks=None, timeout=None, backend=None, *rest, device_id=None, **options):
        return original(ranks, timeout, _gloo_for(backend, options), *rest, **options)

    @replacing(dist, "barrier", *modules)
    def wait(original, group=None, async_op=False, device_ids=None, **options):
        return original(group, async_op, **options)

    @replacing(dist.Work, "get_future")
    def get_future(original, self):
        try:
            return original(self)
        except RuntimeError:  # gloo has none for some collectives
            say("get_future waits")
            self.wait()
            future = torch.futures.Future()
            future.set_result(None)
            return future


def _gloo_for(backend, options):
    if "nccl" not in str(backend).lower():  # "cpu:gloo,cuda:nccl" is one, too
        return backend
    say("backend nccl → gloo")
    options.pop("pg_options", None)
    return "gloo"


def _map_averages():
    """gloo lacks some AVG. If ranks divide before they add, asynchronous calls need no more."""
    for name in filter(functools.partial(hasattr, dist), AVERAGING):
        signature = inspect.signature(getattr(dist, name))

        @replacing(dist, name, dist.distributed_c10d)
        def reduce(original, *args, _signature=signature, **kwargs):
            given = _signature.bind(*args, **kwargs).arguments
            if given.get("op") != dist.ReduceOp.AVG:
                return original(*args, **kwargs)
            say("AVG → SUM / world size")
            given["op"] = dist.ReduceOp.SUM
            size = dist.get_world_size(given.get("group"))
            with torch.no_grad():
                if "tensor" in given:
                    given["tensor"].div_(size)
                elif "input" in given:
                    given["input"] = given["input"] / size
                else:
                    given["input_list"] = [tensor / size for tensor in given["input_list"]]
            return original(**given)


def _map_gathers():
    """nccl writes into any tensor; gloo raises an error for one that needs a gradient."""
    for name in filter(functools.partial(hasattr, dist), GATHERING):

        @replacing(dist, name, dist.distributed_c10d)
        def gather(original, *args, **kwargs):
            detached = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
            return original(*detached[0], **detached[1])
