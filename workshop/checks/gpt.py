"""What a script computes, sends and prints, beside the lesson's script at the same stage."""

import math
import re

from ..verdicts import check
from .evidence import and_ending

LINE = re.compile(r"(?:Step|Epoch) +(\d+) \| (\w+ )?loss ([\d.]+|nan)( over \d+ \w+)?")
NEAR = 2e-4  # of losses, which are printed with four digits
ALIKE = 1e-3  # of gradients, relative
FIRST = 1e-5  # of a run's first, unless they are in 16 bits


def _lines(run):
    """The losses that a run printed: (loss, over how many), by command, step and kind."""
    found = {}
    for attempt in run.attempts:
        for worker in attempt.workers:
            for fact in worker.all("said"):
                if line := LINE.match(fact["text"]):
                    step, kind = int(line[1]), line[2] or ""
                    lines = found.setdefault((attempt.number, step, kind), [])
                    lines.append((float(line[3]), line[4] or ""))
    return found


@check("5_minGPT", None, "mingpt")
def prints_the_same(run):
    """The losses that it prints are those of the lesson's script.

    Compare your numbers with the lesson's: which lines are missing, from which step on do they
    differ, and is it by a factor? If the gradients of the first steps are right: is the learning
    rate? If only those of the validation: does it compute as the training does, as in autocast? If
    only after a resume: what was not saved, or not restored?
    """
    right = _lines(run.reference)
    if told := _difference(run, right):
        failed = run.crash or run.first("hung", "late")
        return None if failed and "printed none" in told else (False, told)
    return (True, f"{len(right)} losses") if right else None


@check("parallel_fsdp", "save-whole-tensors", "parallel")
def resumes(run):
    """Started again with other processes, it continues from the checkpoint as the lesson's does.

    What is in the checkpoint's file, and what does each process make of it? Every process needs its
    part of the weights and of the optimizer's state, also if it had another part before.
    """
    right = {key: lines for key, lines in _lines(run.reference).items() if key[0]}
    if not right:
        return None
    told = _difference(run, right)
    return (False, told) if told else (True, f"{len(right)} losses")


def _difference(run, right):
    """The first loss of `right` that the run lacks or has otherwise, or that it has alone."""
    runs = {number for number, _, _ in right}
    mine = {key: lines for key, lines in _lines(run).items() if key[0] in runs}
    for key in sorted({*mine, *right}):
        number, step, kind = key
        what = f"{kind}loss of step {step}{_in_run(number)}"
        has, wants = mine.get(key, []), right.get(key, [])
        told = f"your script printed {_shown(has)}, the lesson's {_shown(wants)}{and_ending(run)}"
        if len(has) != len(wants):
            return f"the {what}: {told}"
        for (loss, over), (other, samples) in zip(has, wants, strict=True):
            if not abs(loss - other) <= NEAR or over != samples:
                return f"the {what}: {told}"
    return None


def _shown(lines):
    texts = [f"{loss:.4f}{over}" for loss, over in lines]
    return " and ".join(texts) or "none"


@check("5_minGPT", None, "mingpt")
def same_gradient(run):
    """The optimizer gets the gradients that the lesson's gets.

    Compare the gradients' lengths: are they clipped, and where? Is it the mean over all tokens of
    the step? Zero the gradients once per step, and divide each micro-batch's loss by the number of
    micro-batches. If it differs after a validation: is the model in eval mode during it, and in
    train mode again? With FSDP: do all ranks draw the same weights? It sends none at the beginning.
    """
    return _same(run, list)


@check("5_minGPT", None, "parallel")
def same_gradient_together(run):
    """The gradients that the ranks' optimizers get are together those of the lesson's.

    If their length is off by a factor: a sum over ranks is missing, is made twice, or is a mean. If
    the first steps agree: later ones are clipped, by the norm of the whole gradient, on all ranks.
    If it differs a little: is a mean, or a share of tokens, that of one rank? If a run has dropout:
    ranks with the same tokens draw alike. If it differs after a validation: it must drop nothing.
    """
    return _same(run, lambda norms: [math.hypot(*norms)])


def _same(run, of_ranks):
    """Compare the gradients' lengths, step by step, as `of_ranks` makes them of those of ranks."""
    compared, first = 0, ALIKE if "--precision" in run.asked["options"] else FIRST
    for mine, right in zip(run.attempts, run.reference.attempts, strict=False):
        steps = zip(_norms(mine), _norms(right), strict=False)
        for number, both in enumerate(steps, 1):
            pairs = [*zip(*map(of_ranks, both), strict=False)]
            for has, wants in pairs:
                compared += 1
                if not math.isclose(has, wants, rel_tol=first if number == 1 else ALIKE):
                    told = f"has length {has:.6g}; the lesson's has {wants:.6g}"
                    made, due = (one.trained[0].number_of_steps for one in (mine, right))
                    if made < due and not run.first("fault", "hung", "late") and not run.crash:
                        told += f", and makes {due} steps, not {made}"
                    return False, f"the gradient of step {number}{_in_run(mine.number)} {told}"
            if not all(math.isclose(*pair, rel_tol=1e-6) for pair in pairs):
                break  # from here on, rounding decides
    return (True, f"in {compared} steps") if compared else None


def _norms(attempt):
    """Of each step, the length of the gradient on each rank."""
    steps = zip(*(worker.all("step") for worker in attempt.trained), strict=False)
    return [[fact["norm"] or 0.0 for fact in step] for step in steps]


def _in_run(number):
    return f" in run {number + 1}" if number else ""


@check("5b_robust", "save-everything-meanwhile", "mingpt")
def saves_its_step(run):
    """A checkpoint has the weights of the step that it names.

    Training continues while a thread writes. Give the thread copies of all tensors, made before the
    next step.
    """
    mine, right = (
        {(save.numbers.get("steps_run"), save.step["n"]) for save in each.saves if save.step}
        for each in (run, run.reference)
    )
    for number, step in sorted(mine - right, key=str):
        if number in {known for known, _ in right}:
            return False, f"the checkpoint of step {number} has the weights of step {step}"
    return (True, f"{len(mine)} checkpoints") if mine else None


@check("5b_robust", None, "mingpt")
def writes_as_often(run):
    """One process of each node writes each checkpoint, and as often as in the lesson.

    All ranks take part in collecting it. Then one rank of each node writes, since nodes may share
    no disk, and since two writers damage a file. After the last step, there is always a save.
    """
    if run.crash or run.first("hung", "late"):
        return None
    mine, right = (_written(each) for each in (run, run.reference))
    for path, by in right.items():
        has = mine.get(path, [])
        if len(has) != len(by):
            who = " and ".join(sorted({*has})) or "none"
            told = f"{path} is put in its place {len(has)} times, by {who}"
            return False, f"{told}; in the lesson {len(by)} times, by {by[0]}"
    return (True, f"{len(right)} files") if right else None


def _written(run):
    """Who has put a file in its place, by its path."""
    found = {}
    for fact in run.all("renamed"):
        if fact["path"].endswith(".pt"):
            found.setdefault(fact["path"], []).append(run.who(fact))
    return found


@check("5c_fast", "accumulate-gradients", "mingpt")
def sends_once(run):
    """The ranks exchange gradients once per step, with the last micro-batch.

    DDP decides in the forward pass whether the backward pass sends, so both belong inside
    `no_sync()`, for all micro-batches but the last one. If none sends: is one ever the last?
    """
    workers = run.attempts[-1].trained
    for worker in workers:
        sent = passes = steps = 0
        last = None  # forward pass that no backward pass has followed
        for fact in worker.all("forward", "backward", "step"):
            if last and fact["kind"] != "backward":
                told = f"no backward pass follows a forward pass after step {steps}"
                return False, f"{told} of {worker.name}: validate without gradients"
            last = fact if fact["kind"] == "forward" else None
            if fact["kind"] == "step":
                if sent != 1:
                    told = f"{sent} of {passes} forward passes are followed by an exchange"
                    return False, f"in step {steps + 1} of {worker.name}, {told}"
                sent = passes = 0
                steps += 1
            elif last:
                sent, passes = sent + bool(fact["sync"]), passes + 1
    return (True, "in every step") if workers else None


@check("5c_fast", "mixed-precision", "mingpt")
def uses_the_scaler(run):
    """The GradScaler makes the optimizer's step, and the checkpoint has its state, if there is one.

    In fp16 a gradient may overflow. `scaler.step(optimizer)` leaves such a step out. The scaler's
    factor is found by trial, and grows after 2,000 steps: without it, a resumed run begins with
    another one.
    """
    runs = run, run.reference
    mine, right = (len(each.all("scaled")) for each in runs)
    if not right:
        return True, "none is needed"
    if not run.all("step"):
        return None
    if mine < right:
        return False, f"{mine} steps, the lesson {right}"
    saved, wanted = (
        {leaf["key"] for fact in each.all("saved") for leaf in fact["content"]} for each in runs
    )
    if saved and "_growth_tracker" in wanted - saved:
        return False, "no file has its state_dict()"
    loaded, due = (len(each.all("rescaled")) for each in runs)
    if loaded < due:
        return False, f"after a resume, {loaded} processes loaded its state, the lesson {due}"
    return True, f"{mine} steps, the lesson {right}"
