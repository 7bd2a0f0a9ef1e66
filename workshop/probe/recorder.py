"""Writes down what a training process does, without changing it: one JSON object a line.

It looks where every way of writing a script must pass: the modules that are called, `backward`,
optimizers, the collectives, `torch.save` and `torch.load`, renames, stdout. workshop/facts.py says
what the lines mean. Each costs microseconds and is on disk before what it tells of goes on, so that
a process that hangs or is killed has said where.
"""

import atexit
import faulthandler
import functools
import importlib
import importlib.abc
import importlib.util
import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
    "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list",
)  # fmt: skip

_facts = Path(os.environ["WORKSHOP_FACTS"])
_fault = json.loads(os.environ.get("WORKSHOP_FAULT", "{}"))
_here = os.path.realpath(os.environ.get("WORKSHOP_FOLDER", os.getcwd())) + os.sep
_file = None
_inside = 0  # how many observed calls are at work: an all_gather_object is no all_gather
_depth = 0  # of modules that call each other
_steps = 0
_gradients = None  # of the step at work
_rank = int(os.environ["RANK"]) if "RANK" in os.environ else None
_samples = None  # index of a sample by its bytes
_own = {}  # the gradient of each parameter in this step, before anything was averaged
FEW_STEPS, FEW_NUMBERS = 3, 512  # of which gradients are written down in full


def start():
    """Begin: called once in each Python, before the script."""
    global _file
    name = _facts / f"{os.getpid()}.jsonl"
    _file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.register_at_fork(after_in_child=_forked)
    stacks = open(name.with_suffix(".stack"), "w")  # noqa: SIM115 - open as long as the process is
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    fact(
        "process", parent=os.getppid(), argv=sys.orig_argv[1:], attempt=_attempt(),
        node=os.environ.get("WORKSHOP_NODE"), torchrun="TORCHELASTIC_RUN_ID" in os.environ,
        **{name.lower(): int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
           if os.environ.get(name, "").isdecimal()},
    )  # fmt: skip
    write, waiting = sys.stdout.write, ""

    def listen(text):
        nonlocal waiting
        *lines, waiting = (waiting + text).split("\n")
        for line in lines:
            fact("said", text=line[:300])
        return write(text)

    sys.stdout.write = listen
    os._exit = _before(os._exit, _ended)
    atexit.register(_ended, None)
    sys.addaudithook(_audit)
    sys.meta_path.insert(0, _AfterTorch())


def fact(kind, **fields):
    """Write one fact down."""
    if _file is not None:
        line = json.dumps({"kind": kind, "t": time.monotonic(), "pid": os.getpid(), **fields})
        os.write(_file, line.encode() + b"\n")


def _forked():
    global _file
    _file = None  # a DataLoader's worker: it trains nothing


def _attempt():
    acts = int(os.environ.get("WORKSHOP_ACT", 0))
    return acts + int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def _before(function, note):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        note(*args, **kwargs)
        return function(*args, **kwargs)

    return wrapped


def _ended(status):
    cause = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    fact("exit", status=status, cause=os.path.isfile(cause))


def _audit(event, args):
    if _file is None:
        return
    if event == "os.rename" and isinstance(args[0], str | os.PathLike):
        fact("renamed", source=_place(args[0]), path=_place(args[1]))
    elif event == "sys.excepthook":
        _raised(args[2])
    elif event == "open" and isinstance(args[0], str) and isinstance(args[2], int):
        path = os.path.realpath(args[0])
        if path.startswith(_here) and not path.endswith((".py", ".pyc", ".tmp")):
            writing = args[2] & (os.O_WRONLY | os.O_RDWR)
            fact("opened", path=_place(path), writing=bool(writing))


def _place(path):
    return os.path.realpath(path).removeprefix(_here)


def _where():
    """The line of the learner's folder that is at work, innermost."""
    frame = sys._getframe(1)
    while frame:
        if _is_theirs(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _is_theirs(file):
    inside = file[:1] != "<" and os.path.realpath(file).startswith(_here)
    return inside and os.path.basename(file) != "utils.py"


def _raised(error):
    trace, where = error.__traceback__, None
    while trace:
        file = trace.tb_frame.f_code.co_filename
        if _is_theirs(file):
            where = f"{os.path.basename(file)}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(error, SyntaxError):
        where = f"{os.path.basename(error.filename or '')}:{error.lineno}"
    lines = str(error).strip().split("\n")
    fact("raised", type=type(error).__name__, message=lines[-1][:300], where=where)


class _AfterTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Patches torch when its import has ended."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                try:
                    _patch(module)
                except Exception as error:  # another torch: the run goes on, with fewer facts
                    fact("unobserved", error=repr(error))

            spec.loader.exec_module = exec_module
        return spec


def _patch(torch):
    import torch.distributed as dist
    import torch.optim.optimizer as optimizers
    from torch.nn.modules import module as modules
    from torch.nn.parallel import DistributedDataParallel as DDP
    from torch.utils.data import DataLoader

    modules.register_module_forward_pre_hook(functools.partial(_forward, torch))
    modules.register_module_forward_hook(_forwarded, always_call=True)
    torch.Tensor.backward = _backward(torch.Tensor.backward)
    optimizers.register_optimizer_step_pre_hook(functools.partial(_before_step, torch))
    optimizers.register_optimizer_step_post_hook(functools.partial(_after_step, torch))
    DataLoader.__iter__ = _before(DataLoader.__iter__, lambda loader: fact("loader"))
    DDP.__init__ = _collective(torch, "DDP", DDP.__init__, whole=True)
    if dist.is_available():
        core = dist.distributed_c10d
        for name in COLLECTIVES:
            _replace(dist, core, name, functools.partial(_collective, torch, name))
        _replace(dist, core, "init_process_group", _joining)
        _replace(dist, core, "destroy_process_group", _leaving)
    torch.save = _saving(torch, torch.save)
    torch.load = _loading(torch, torch.load)
    spawn = importlib.import_module("torch.multiprocessing.spawn")  # torch has a function so named
    spawn._wrap = _spawned(spawn._wrap)


def _replace(dist, core, name, wrap):
    if hasattr(core, name):
        wrapped = wrap(getattr(core, name))
        setattr(core, name, wrapped)
        setattr(dist, name, wrapped)


def _spawned(wrap):
    @functools.wraps(wrap)
    def wrapped(function, *rest):
        def observed(*args):
            try:
                return function(*args)
            except Exception as error:
                _raised(error)
                raise

        return wrap(observed, *rest)

    return wrapped


# The training step


def _forward(torch, module, args):
    global _depth, _inside
    _depth += 1
    if _depth > 1 or not args or not isinstance(args[0], torch.Tensor) or args[0].ndim < 1:
        return
    _inside += 1
    rows = args[0].detach().cpu().contiguous()
    rows = rows.reshape(len(rows), -1).numpy()
    known = _known_samples()
    found = [known.get(row.tobytes(), -1) for row in rows]
    _inside -= 1
    if torch.is_grad_enabled():
        _listen_to_gradients(module)
    fact(
        "batch", samples=found, through=type(module).__name__, grad=torch.is_grad_enabled(),
        where=_where(),
    )  # fmt: skip


def _listen_to_gradients(module):
    """A hook on a leaf sees what this rank computed: DDP averages later."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    if sum(p.numel() for p in parameters) > FEW_NUMBERS:
        return
    for p in parameters:
        if p not in _own:
            _own[p] = None
            p.register_hook(functools.partial(_add_gradient, p))


def _add_gradient(p, gradient):
    if _steps < FEW_STEPS:
        _own[p] = gradient.detach().clone() if _own[p] is None else _own[p] + gradient.detach()


def _forwarded(module, args, output):
    global _depth
    _depth = max(0, _depth - 1)


def _known_samples():
    global _samples
    if _samples is None:
        utils = Path(__file__).resolve().parents[2] / "utils.py"
        spec = importlib.util.spec_from_file_location("_workshop_utils", utils)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        features = module.MyTrainDataset().features.numpy()
        _samples = {row.tobytes(): index for index, row in enumerate(features)}
    return _samples


def _backward(backward):
    @functools.wraps(backward)
    def wrapped(self, *args, **kwargs):
        loss = float(self.detach()) if self.numel() == 1 else None
        fact("backward", loss=loss, where=_where())
        return backward(self, *args, **kwargs)

    return wrapped


def _before_step(torch, optimizer, args, kwargs):
    global _gradients
    if {"step": _steps + 1, "rank": _rank} == _fault and _attempt() == 0:
        fact("fault", step=_steps + 1)
        raise RuntimeError("a failure that the workshop has caused, to see what follows")
    if _steps == 0:
        fact("first", parameters=_parameters(torch, optimizer), state=_state(torch, optimizer))
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    _gradients = _print(torch, [p.grad for p in parameters])
    if _steps < FEW_STEPS and all(
        _own.get(p) is not None and p.grad is not None for p in parameters
    ):
        own = [number for p in parameters for number in _own[p].flatten().tolist()]
        used = [number for p in parameters for number in p.grad.flatten().tolist()]
        fact("gradient", own=own, used=used)
    for p in _own:
        _own[p] = None


def _after_step(torch, optimizer, args, kwargs):
    global _steps
    _steps += 1
    fact(
        "step", gradients=_gradients, parameters=_parameters(torch, optimizer),
        state=_state(torch, optimizer),
    )  # fmt: skip
    if _steps == 1:
        for ddp in _ddps:
            sizes = ddp._get_ddp_logging_data().get("bucket_sizes", "")
            fact("buckets", bytes=[int(size) for size in sizes.split(",") if size.strip()])


def _parameters(torch, optimizer):
    return _print(torch, [p for group in optimizer.param_groups for p in group["params"]])


def _state(torch, optimizer):
    states = [optimizer.state.get(p, {}) for g in optimizer.param_groups for p in g["params"]]
    return _print(torch, _tensors(torch, states))


def _print(torch, tensors):
    """A fingerprint of the bits of tensors, in order; None if there are none."""
    crc = None
    for tensor in tensors:
        if tensor is not None:
            bits = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            crc = zlib.crc32(bits.numpy(), crc or 0)
    return None if crc is None else f"{crc:08x}"


def _tensors(torch, value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for one in value for tensor in _tensors(torch, one)]
    return []


# Collectives

_ddps = []


def _collective(torch, name, function, whole=False):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        global _inside
        if _inside:
            return function(*args, **kwargs)
        sent = [] if "object" in name else _tensors(torch, [*args, *kwargs.values()])
        size = sum(tensor.numel() * tensor.element_size() for tensor in sent)
        fact("collective", what=name, bytes=size, where=_where())
        _inside += 1
        try:
            result = function(*args, **kwargs)
        finally:
            _inside -= 1
        fact("done", what=name)
        if whole:
            _ddps.append(args[0])
        return result

    return wrapped


def _joining(join):
    @functools.wraps(join)
    def wrapped(*args, **kwargs):
        global _rank, _inside
        import torch.distributed as dist

        fact("joining", where=_where())
        _inside += 1
        try:
            result = join(*args, **kwargs)
        finally:
            _inside -= 1
        _rank = dist.get_rank()
        fact("joined", rank=_rank, world_size=dist.get_world_size(), backend=dist.get_backend())
        return result

    return wrapped


def _leaving(leave):
    @functools.wraps(leave)
    def wrapped(*args, **kwargs):
        result = leave(*args, **kwargs)
        fact("left")
        return result

    return wrapped


# Files


def _saving(torch, save):
    @functools.wraps(save)
    def wrapped(obj, f, *args, **kwargs):
        result = save(obj, f, *args, **kwargs)
        if _inside:  # an object on its way through a collective
            return result
        fact("saved", path=_file_name(f), content=_outline(torch, obj), where=_where())
        return result

    return wrapped


def _loading(torch, load):
    @functools.wraps(load)
    def wrapped(f, *args, **kwargs):
        result = load(f, *args, **kwargs)
        if _inside:
            return result
        fact("loaded", path=_file_name(f), content=_outline(torch, result))
        return result

    return wrapped


def _file_name(file):
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    return _place(name) if isinstance(name, str | os.PathLike) else None


def _outline(torch, value):
    """What stands in a checkpoint: numbers as they are, of tensors the fingerprint."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value if not isinstance(value, str) else value[:100]
    if isinstance(value, torch.Tensor):
        return {"tensor": list(value.shape), "print": _print(torch, [value])}
    if isinstance(value, dict):
        keys = {str(key): _outline(torch, one) for key, one in value.items()}
        return {"keys": keys, "print": _print(torch, _tensors(torch, value))}
    if isinstance(value, list | tuple):
        return [_outline(torch, one) for one in value[:20]]
    return type(value).__name__
