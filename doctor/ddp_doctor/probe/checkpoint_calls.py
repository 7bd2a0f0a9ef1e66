"""Watch checkpoints: what a rank saves, where, and whether it is what the run has now."""

import contextlib
import os
import pickle
import threading

import _ddp_doctor as recorder
import torch
from _ddp_doctor import around, beside, exceptions, imports, optimizers, passes, places, system
from _ddp_doctor.fingerprints import fingerprint, is_part, part, region, rounded, tensors_in


def watch():
    torch.save = around(torch.save, _before_save, _note_file)
    load = around(torch.load, before=places.begin_load, then=_note_torch_load, failed=_note_load)
    torch.load = load
    pickle.dump = around(pickle.dump, _before_save, _note_file)
    imports.after("torch.distributed.checkpoint", _watch_dcp)
    imports.after("safetensors", _watch_safe_open)
    imports.after("safetensors.torch", _watch_safetensors)


@recorder.guarded
def _note_torch_load(loaded, f, map_location=None, *_, **__):
    _note_load(f, gpus=None if map_location else places.end_load(loaded))


def _watch_dcp(checkpoint):
    """With torch.distributed.checkpoint, each rank writes its part of one checkpoint."""

    def folder_of(storage, checkpoint_id):
        return checkpoint_id or getattr(storage, "path", None)

    def note(state_dict, storage_writer=None, *_, checkpoint_id=None, **__):
        _note_file(state_dict, folder_of(storage_writer, checkpoint_id), together=True)

    def note_load(state_dict, storage_reader=None, *_, checkpoint_id=None, **__):
        _note_load(folder_of(storage_reader, checkpoint_id))
        for optimizer in optimizers.recent():  # it may have loaded into the tensors themselves
            optimizers.note_loaded(optimizer)

    for kind, after in (("save", note), ("async_save", note), ("load", note_load)):
        for name in {kind, f"{kind}_state_dict"} & vars(checkpoint).keys():  # one is deprecated
            setattr(checkpoint, name, around(getattr(checkpoint, name), after=after))


def _watch_safetensors(module):
    """Hugging Face's libraries write weights with it."""
    recorder.watch(module, "save_file", _before_save, _note_file)
    recorder.watch(module, "load_file", after=_note_load)


def _watch_safe_open(module):
    """Transformers reads a checkpoint tensor by tensor."""
    recorder.watch(module, "safe_open", after=_note_load)


_existed = False


def _given(f=None, file=None, filename=None, **_):
    """The file, as torch, pickle or safetensors calls it."""
    return next((one for one in (f, file, filename) if one is not None), None)


def _before_save(obj=None, f=None, *_, **named):
    global _existed
    f = _given(f, **named)
    if isinstance(f, str | os.PathLike):
        _existed = os.path.exists(f)
        system.protect(os.path.realpath(f))
    else:
        name = getattr(f, "name", None)
        _existed = isinstance(name, str) and os.path.realpath(name) in system.overwritten


def _name(f):
    name = f if isinstance(f, str | os.PathLike) else getattr(f, "name", None)
    return name if isinstance(name, str | os.PathLike) else None


@recorder.guarded
def _note_file(obj=None, f=None, *_, together=False, tensors=None, **named):
    obj, name = tensors if obj is None else obj, _name(_given(f, **named))
    thread = threading.current_thread() is not threading.main_thread()
    beside.at_save()
    content = _leaves(obj)
    recent = optimizers.recent()
    saved = {leaf["print"] for leaf in content} | {*_prints_of_shards(obj, recent)}
    recorder.fact(
        "saved", path=name and recorder.place(name), existed=_existed, together=together,
        thread=thread, content=content, names=_names(passes.model), gpus=places.gpus_of(obj),
        where=recorder.where(), caller=recorder.caller(),
        shards=sum(map(is_part, tensors_in(obj))),
        **(_earlier(saved) if thread else _now(saved, recent)),
    )  # fmt: skip


def _now(saved, recent):
    """What is saved of the training, and how far that is."""
    shares = [_weights(optimizers.parameters_of(one), saved) for one in recent]
    if not recent and recorder.counts.get("backward"):  # it steps by hand
        shares = [_weights([*passes.model.parameters()], saved)]
    weights, halves = max(shares, key=lambda share: share[0] or 0, default=(None, None))
    parts = []
    for one, (share, _) in zip(recent, shares, strict=False):
        state = [fingerprint(tensor) for tensor in optimizers.state_of(one)]
        parts.append(_part(optimizers.number_of(one), share, state, saved))
    how_far = {"step": recorder.counts.get("step", 0), "made": {**optimizers.steps}}
    return {"weights": weights, "halves": halves, "parts": parts, **how_far}


def _earlier(saved):
    """The same, of what another thread saves while training continues: the step whose weights it
    has, if the probe looked at that one."""
    how_far, found = {"step": recorder.counts.get("step", 0), "made": {**optimizers.steps}}, {}
    for opt, then, replica in [*optimizers.moments]:
        part = _part(opt, _share(replica["parameters"], saved), replica["state"], saved)
        if (part["weights"] or 0) >= max(0.5, found[opt]["weights"] if opt in found else 0):
            found[opt], how_far = part, then
    weights = max((part["weights"] for part in found.values()), default=None)
    return {"weights": weights, "halves": None, "parts": [*found.values()], **how_far}


def _prints_of_shards(obj, recent):
    """The fingerprints of this rank's shards in whole tensors, as FSDP's model is saved."""
    regions = {}
    for parameter in [p for one in recent for p in optimizers.parameters_of(one)]:
        if bounds := region(parameter):
            regions.setdefault(parameter.shape, set()).add(bounds)
    for tensor in tensors_in(obj) if regions else ():
        for bounds in regions.get(tensor.shape, ()) if not region(tensor) else ():
            yield fingerprint(part(tensor, bounds))


def _names(model):
    """As in its state_dict, which would be a collective call with FSDP."""
    tensors = (model.named_parameters, model.named_buffers)
    return [name for named in tensors for name, _ in named(remove_duplicate=False)]


def _part(opt, weights, state, saved):
    """What the file has of an optimizer."""
    return {"opt": opt, "weights": weights, "state": _share(state, saved), "kept": len(state)}


def _weights(trained, saved):
    """The share of the weights that are in the file; their fingerprints as halves, if those are."""
    share = _share([fingerprint(p) for p in trained], saved)
    for halves in rounded(trained) if trained and share < 0.5 else ():
        if (rough := _share(halves, saved)) >= 0.5:
            return rough, halves
    return share, None


def _share(live, saved):
    """The share of the live tensors that are in the file; None without any."""
    return sum(one in saved for one in live) / len(live) if live else None


@recorder.guarded
def _note_load(f=None, *_, error=None, gpus=None, **named):
    name = _name(_given(f, **named))
    recorder.fact(
        "loaded", path=name and recorder.place(name),
        behind=name and recorder.place(os.path.realpath(name)),
        step=recorder.counts.get("step", 0), where=recorder.where(), gpus=gpus,
        error=error and f"{type(error).__name__}: {exceptions.message_of(error)}",
    )  # fmt: skip


def _as_tensor(value):
    """A tensor, or an array of numbers as one. An array of texts, or a table, is none."""
    if hasattr(type(value), "__array__"):  # a value's own __getattr__ may raise anything
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            return torch.as_tensor(value)
    return None


def _leaves(value, key=None, path=()):
    """What a checkpoint contains: tensors as fingerprints, whole numbers that have a key."""
    if isinstance(value, torch.nn.Module | torch.amp.GradScaler):
        value = value.state_dict()
    elif isinstance(value, torch.optim.Optimizer):  # whose own state_dict may need all ranks
        value = [*value.state.values()]
    if isinstance(value, dict):
        pairs = ((str(name), one) for name, one in value.items())
        return [leaf for name, one in pairs for leaf in _leaves(one, name, (*path, name))]
    if isinstance(value, list | tuple):
        return [leaf for one in value for leaf in _leaves(one, None, path)]
    print, number = None, value if key and type(value) is int else None
    if (tensor := _as_tensor(value)) is not None:
        print, whole = fingerprint(tensor), not tensor.is_floating_point()
        number = int(tensor) if key and whole and tensor.numel() == 1 else None
    return [{"key": key, "print": print, "number": number, "path": "/".join(path[:6])}]
