"""Watch for how many keys of a state_dict a model has a place, and where schedules are made."""

import functools
import weakref

import _ddp_doctor as recorder
import torch
from _ddp_doctor import around, optimizers

MOST = 200  # loads to record: a target network may be loaded in each step
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}

_numbers = weakref.WeakKeyDictionary()  # of the models into which something did not fit
_schedules, _number = [], weakref.WeakKeyDictionary()  # the second by scheduler


def watch():
    torch.nn.Module.load_state_dict = _watched(torch.nn.Module.load_state_dict)
    scheduler = torch.optim.lr_scheduler.LRScheduler
    scheduler.__init__ = around(scheduler.__init__, after=_note_schedule)
    scheduler.step = around(scheduler.step, after=_note_rate)
    recorder.at_end.append(_write_schedules)


def _watched(load):
    @functools.wraps(load)
    def wrapped(self, state_dict, *rest, **options):
        given = [*state_dict]  # a hook may take keys out
        result = load(self, state_dict, *rest, **options)
        _note_places(self, given, result)
        return result

    return wrapped


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
                top=one.top, rate=one.rate,
            )  # fmt: skip
