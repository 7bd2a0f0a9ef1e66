"""Answer for torch.cuda and torch.accelerator as a machine with N GPUs would, without any GPU."""

import collections
import contextlib
import os
import sys
import time
from types import SimpleNamespace

import torch

NUMBER = int(os.environ.get("DOCTOR_CPU", 1))  # of devices
NOTHING_TO_DO = (
    "_dump_snapshot", "_record_memory_history", "check_error", "empty_cache", "empty_host_cache",
    "init", "ipc_collect", "mark", "range_end", "range_pop", "range_push", "range_start",
    "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_memory_stats", "set_per_process_memory_fraction", "set_stream",
    "set_sync_debug_mode", "start", "stop", "synchronize",
)  # fmt: skip
ZERO = (
    "clock_rate", "device_memory_used", "get_sync_debug_mode", "max_memory_allocated",
    "max_memory_cached", "max_memory_reserved", "memory_allocated", "memory_cached",
    "memory_reserved", "memory_usage", "power_draw", "temperature", "utilization",
)  # fmt: skip
ENDS = ("", "_idx", "_index")  # of the names of functions that are about the current device

_current = 0  # index of the current device


def _returning(value):
    return lambda *_, **__: value


class Stream(torch.Stream):
    """Work on a CPU has ended when its call returns, so there is nothing to wait for."""

    priority = cuda_stream = 0

    def __new__(cls, *_, **__):
        return super().__new__(cls, stream_id=0, device_index=_current, device_type=1)  # cuda

    __init__ = __exit__ = wait_event = wait_stream = synchronize = _returning(None)
    query, is_capturing = _returning(True), _returning(False)

    def __enter__(self):
        return self

    def record_event(self, event=None):
        event = event or Event()
        event.record()
        return event


class Event(torch.Event):
    """Measures the time on the CPU."""

    def __new__(cls, *_, **__):
        return super().__new__(cls, device="cpu")

    def __init__(self, *_, **__):
        self._recorded = None

    def record(self, stream=None):
        self._recorded = time.perf_counter()

    def elapsed_time(self, end):
        return (end._recorded - self._recorded) * 1000

    wait = synchronize = _returning(None)
    query = _returning(True)


class CurrentDevice:
    """A context with another current device."""

    def __init__(self, device):
        self.index = _index_of(device)

    def __enter__(self):
        self.before = _current
        _set_device(self.index)

    def __exit__(self, *_):
        _set_device(self.before)


def _index_of(device):
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return _current if index is None else index


def _set_device(device):
    global _current
    index = _index_of(device)
    if index >= NUMBER:
        raise RuntimeError(f"invalid device ordinal {index}: --cpu {NUMBER} offers {NUMBER}")
    if index >= 0:
        _current = index


def current():
    return _current


def _memory():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _properties():
    return SimpleNamespace(
        name="CPU instead of a GPU", major=8, minor=0, total_memory=_memory(), warp_size=32,
        multi_processor_count=os.cpu_count(), max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536, shared_memory_per_block=49152, L2_cache_size=40 * 2**20,
        gcnArchName="",
    )  # fmt: skip


def _answers():
    """What to return, by name. Not twice the same function: torch.compile has tables of them."""
    return {
        **{name: _returning(None) for name in NOTHING_TO_DO},
        **{name: _returning(0) for name in ZERO},
        "Event": Event,
        "ExternalStream": Stream,
        "Stream": Stream,
        "can_device_access_peer": _returning(True),
        "cudart": _returning(SimpleNamespace(cudaProfilerStart=int, cudaProfilerStop=int)),
        "current_accelerator": _returning(torch.device("cuda")),
        **{f"current_device{end}": lambda: _current for end in ENDS},
        "current_stream": lambda device=None: Stream(),
        "default_generators": tuple(torch.Generator() for _ in range(NUMBER)),  # draw nothing
        "default_stream": lambda device=None: Stream(),
        "device": CurrentDevice,
        "device_count": _returning(NUMBER),
        "device_index": CurrentDevice,
        "device_of": contextlib.nullcontext,
        "get_arch_list": _returning([]),
        "get_device_properties": lambda device=None: _properties(),
        "get_memory_info": lambda device=None: (_memory(), _memory()),
        "is_available": _returning(True),
        "is_bf16_supported": _returning(True),
        "is_current_stream_capturing": _returning(False),
        "is_initialized": _returning(True),
        "list_gpu_processes": _returning(""),
        "mem_get_info": lambda device=None: (_memory(), _memory()),
        "memory_snapshot": _returning([]),
        "memory_stats": lambda device=None: collections.defaultdict(int),
        "memory_summary": _returning(""),
        **{f"set_device{end}": lambda device: _set_device(device) for end in ENDS},
        "stream": lambda stream: contextlib.nullcontext(stream),
        "version": _returning((2, 27, 3)),  # NCCL's
    }


def install():
    """Replace the functions in every module that has them, since many are imported by name."""
    for package in ("torch.cuda", "torch.accelerator"):
        answers = _answers()
        for module in [m for name, m in sys.modules.items() if name.startswith(package)]:
            for name in answers.keys() & vars(module).keys():
                setattr(module, name, answers[name])
    torch.Stream, torch.Event = Stream, Event
    torch.version.cuda = torch.version.cuda or "12.8"  # where there is a GPU, there is a version
    for name in dir(torch.cuda):
        if name.endswith("Tensor") and hasattr(torch, name):
            setattr(torch.cuda, name, getattr(torch, name))  # FloatTensor and the like
