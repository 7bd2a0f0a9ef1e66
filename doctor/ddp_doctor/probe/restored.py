"""Watch for how many keys of a state_dict a model has a place, and where schedules are made."""

import collections
import functools
import inspect
import weakref

import _ddp_doctor as recorder
import torch
from _ddp_doctor import around, optimizers
from _ddp_doctor.fingerprints import local, tensors_in

MOST = 200  # loads to record: a target network may be loaded in each step
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}

_numbers = weakref.WeakKeyDictionary()  # of the models into which something did not fit
_taken = collections.deque(maxlen=20)  # state_dicts: a weak reference, steps, loads, and a line
_schedules, _number = [], weakref.WeakKeyDictionary()  # the second by scheduler


def watch():
    torch.nn.Module.load_state_dict = _watched(torch.nn.Module.load_state_dict)
    recorder.watch(torch.nn.Module, "state_dict", then=_note_taken, hides=False)
    scheduler = torch.optim.lr_scheduler.LRScheduler
    scheduler.__init__ = around(scheduler.__init__, after=_note_schedule)
    scheduler.step = around(scheduler.step, after=_note_rate)
    recorder.at_end.append(_write_schedules)


def _watched(load):
    @functools.wraps(load)
    def wrapped(self, state_dict, *rest, **options):
        given = [*state_dict]  # a hook may take keys out
        _note_own(self, state_dict)
        recorder.count("loads")
        result = load(self, state_dict, *rest, **options)
        _note_places(self, given, result)
        return result

    return wrapped


@recorder.guarded
def _note_taken(state, module, *rest, destination=None, **_):
    if not rest and destination is None and isinstance(state, collections.OrderedDict):
        done = [recorder.counts.get(kind, 0) for kind in ("step", "loads")]
        _taken.append((weakref.ref(state), *done, recorder.where()))


@recorder.guarded
def _note_own(model, state):
    """A state_dict that was kept has the memory of the weights: it is what they are now."""
    made, loads = (recorder.counts.get(kind, 0) for kind in ("step", "loads"))
    for taken, steps, loaded, where in _taken:
        if taken() is state and (steps, loaded) != (made, loads):
            own = {local(t).data_ptr() for t in (*model.parameters(), *model.buffers())}
            kept = [local(t).data_ptr() for t in tensors_in(state) if t.numel()]
            if own.issuperset(kept) and recorder.count("own state") == 1:
                recorder.fact("own", taken=steps, step=made, where=where)


@recorder.guarded
def _note_places(model, given, result):
    """Without `strict`, keys that do not match are no error. A later load may bring the others."""
    missing = getattr(result, "missing_keys", ())
    unexpected = getattr(result, "unexpected_keys", ())
    number = next((n for one, n in _numbers.items() if _contains(one, model)), None)
    if number is None and not missing and not unexpected:
        return
    if number is None:
        number = _numbers[model] = len(_numbers)
    if recorder.count("restored") > MOST:
        return
    wanted = {*map(_plain, missing)}
    inner = {key.partition(".")[2] for key in wanted}
    pairs = [(key, _plain(key)) for key in unexpected]
    renamed = [
        key for key, name in pairs if wanted & {name, name.partition(".")[2]} or name in inner
    ]
    matched = len({*given} - {*unexpected})
    recorder.fact(
        "restored", model=number, type=type(model).__name__, given=len(given), matched=matched,
        wanted=matched + len(missing), renamed=len(renamed), where=recorder.where(),
        numbers=sum(p.numel() for p in model.parameters()),
        missing=[*missing][:1], unexpected=[*(renamed or unexpected)][:1],
    )  # fmt: skip


def _contains(one, other):
    """Whether one of two models is in the other, as in a wrapper."""
    return any(part is other for part in one.modules()) or any(m is one for m in other.modules())


def _plain(key):
    """A key without the names of wrappers."""
    return ".".join(part for part in key.split(".") if part not in WRAPPERS)


class Schedule:
    """How a scheduler changes the rate of its optimizer's first group."""

    def __init__(self, scheduler):
        self.optimizer, self.where = weakref.ref(scheduler.optimizer), recorder.where()
        self.type, self.calls, self.changes = type(scheduler).__name__, 0, 0
        self.numbers = sorted({*_numbers_of(scheduler)})
        self.early = [0, None]
        self.rate = self.top = self.low = self.begin()
        self.steps = self.changed = self.lowest = 0  # the optimizer's steps until then

    def begin(self):
        groups = getattr(self.optimizer(), "param_groups", None)
        rate = groups[0].get("lr") if groups else None
        return rate if isinstance(rate, float | int) else None  # a GPU's number would have to wait

    def look(self):
        optimizer = self.optimizer()
        self.calls, self.steps = self.calls + 1, optimizers.made(optimizer) if optimizer else 0
        if not self.steps:
            self.early = [self.calls, recorder.where()]
        rate = self.begin()
        if rate is None or self.rate is None or rate == self.rate:
            return
        self.changes, self.changed, self.rate = self.changes + 1, self.steps, rate
        if rate > 1.001 * self.top:  # a cosine comes back to almost the same
            self.top = self.low = rate
        if rate < self.low:
            self.low, self.lowest = rate, self.changed


def _numbers_of(scheduler):
    """The whole numbers from which it may compute a rate: one may be the steps that are planned."""
    known = [{**vars(scheduler), "last_epoch": 0, "_step_count": 0}]
    for function in known[0].get("lr_lambdas", ()):
        known.append(getattr(function, "keywords", {}))  # of a partial one, as in Transformers
        function = getattr(function, "func", function)
        if hasattr(function, "__code__"):
            read = inspect.getclosurevars(function)
            known += [read.nonlocals, read.globals]
    return [one for names in known for one in names.values() if type(one) is int and one > 7]


@recorder.guarded
def _note_schedule(scheduler, *_, **__):
    _number[scheduler] = len(_schedules)
    _schedules.append(Schedule(scheduler))


@recorder.guarded
def _note_rate(scheduler, *_, **__):
    if scheduler in _number:
        _schedules[_number[scheduler]].look()


@recorder.guarded
def _write_schedules():
    for one in _schedules[:20]:
        if one.rate is not None and one.steps:
            recorder.fact(
                "scheduled", type=one.type, where=one.where, calls=one.calls, early=one.early,
                steps=one.steps,
                changes=one.changes, changed=one.changed, lowest=one.lowest, low=one.low,
                top=one.top, rate=one.rate, numbers=one.numbers[:50],
            )  # fmt: skip
