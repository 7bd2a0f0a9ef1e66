"""What a script computes, sends and prints, beside the lesson's script at the same stage."""

import math
import re

from ..verdicts import check
from .evidence import and_ending
from .group import left_the_group

LINE = re.compile(r"(?:Step|Epoch) +(\d+) \| (\w+ )?loss ([\d.]+|nan)( over \d+ \w+)?")
NEAR = 2e-4  # of losses, which are printed with four digits
ALIKE = 1e-3  # of gradients, relative


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
    differ, and is it by a factor? If only after a resume: what was not saved, or not restored?
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
        what = f"{kind}loss of step {step}{f' in run {number + 1}' if number else ''}"
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

    Compare the lengths: is it clipped, and where? Is it the mean over all tokens of the step? Zero
    the gradients once per step, and divide each micro-batch's loss by the number of micro-batches.
    If it differs after a validation: is the model in train mode again?
    """
    compared = 0
    for mine, right in zip(run.attempts, run.reference.attempts, strict=False):
        for worker, other in zip(mine.trained, right.trained, strict=False):
            pairs = zip(worker.all("step"), other.all("step"), strict=False)
            for number, (step, theirs) in enumerate(pairs, 1):
                compared += 1
                if not math.isclose(step["norm"], theirs["norm"], rel_tol=ALIKE):
                    has = f"has length {step['norm']:.4g}; the lesson's has {theirs['norm']:.4g}"
                    return False, f"the gradient of step {number} {has}"
                if abs(step["norm"] - theirs["norm"]) > 1e-6 * theirs["norm"]:
                    break  # from here on, rounding decides
    return (True, f"in {compared} steps") if compared else None


@check("5c_fast", "accumulate-gradients", "mingpt")
def sends_once(run):
    """The ranks exchange gradients once per step, with the last micro-batch.

    DDP decides in the forward pass whether the backward pass sends, so both belong inside
    `no_sync()`, for all micro-batches but the last one.
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
def steps_by_the_scaler(run):
    """The GradScaler makes the optimizer's step.

    In fp16 a gradient may overflow. `scaler.step(optimizer)` leaves such a step out.
    """
    mine, right = (len(each.all("scaled")) for each in (run, run.reference))
    if not right:
        return True, "none is needed"
    return (mine >= right, f"{mine} steps, the lesson {right}") if run.all("step") else None


@check("5b_robust", "save-everything-meanwhile", "mingpt")
def waits_for_the_last_save(run):
    """When the training is over, the ranks wait for the last save.

    A thread may still write. Wait for it before the barrier: then the others do not leave before
    the file is there, and a save that fails is an error of the run.
    """
    return left_the_group.judge(run)


@check("5b_robust", "save-everything-meanwhile", "mingpt")
def saves_the_scaler(run):
    """The checkpoint has the GradScaler's state, if there is one.

    Its factor is found by trial, and grows after 2,000 steps: without it, a resumed run begins with
    another one.
    """
    mine, right = (
        {leaf["key"] for fact in each.all("saved") for leaf in fact["content"]}
        for each in (run, run.reference)
    )
    if not right or "_growth_tracker" not in right:
        return True, "none is needed"
    if not mine:
        return None
    saved = "_growth_tracker" in mine
    return saved, "in the file" if saved else "no file has its state_dict()"
