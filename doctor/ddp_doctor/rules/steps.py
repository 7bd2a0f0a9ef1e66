"""How a step and an evaluation are made."""

import re

from ..rule import rule
from .drawn_samples import epochs_of, stepped_on
from .replicas import is_sharded, losses_of
from .wording import is_planned, lines_with, times, where


@rule("error")
def not_causal(run):
    """A language model sees the token that it has to predict.

    Its loss falls far below what is possible, and what it generates is noise. PyTorch adds an
    attention mask of floats to the scores. Pass a boolean one: for MultiheadAttention, True hides.
    """
    for fact in run.all("causality")[:1]:
        if fact["moved"] > 1e-4 * fact["scale"]:
            yield (
                "the targets are the inputs shifted by one, but another last token changes earlier "
                f"outputs by up to {fact['moved']:.2g}"
            ), fact["where"]


@rule("warning")
def eval_in_train_mode(run):
    """An evaluation runs in train mode.

    With dropout it measures a weaker model, each time with another result; batch statistics change
    by its samples. Call `model.eval()` before it, and `model.train()` after it.
    """
    trains = stepped_on(run)  # a pass on one of its batches is part of a training step
    found = [fact for fact in run.all("evaluation") if fact["loader"] not in trains]
    for fact in [fact for fact in found if not _finds_statistics(run, fact, trains)][:1]:
        kind = f"evaluation in train mode {fact['loader']}"
        workers = run.trained or run.attempts[0].workers
        number = max(worker.counts.get(kind, 2) for worker in workers)
        yield (
            f"{times(number)} {fact['through']} ran without gradients in train mode: {_live(fact)}"
        ), fact["where"]
    for worker in run.trained[:1]:
        unused = {
            epoch["loader"]
            for epoch in worker.all("epoch")
            if epoch["did"]["forward"] > 4 and not epoch["backwards"]
        }
        for fact in worker.all("forward"):
            if fact["loader"] in unused - trains and fact["live"]:
                yield (
                    f"{fact['through']} ran in train mode, with gradients that no backward pass "
                    f"used: {_live(fact)}"
                ), fact["where"]


def _finds_statistics(run, fact, trains):
    """Whether these are passes on the training's batches that BatchNorm's statistics come from."""
    alone = all("BatchNorm" in name for name in fact["live"])
    passes = [epoch for epoch in run.all("epoch") if epoch["loader"] in trains]
    return alone and any(one["did"]["evaluation"] and not one["did"]["step"] for one in passes)


@rule("warning")
def statistics_never_found(run):
    """An evaluation uses BatchNorm statistics that no batch has changed.

    They are still mean 0 and variance 1, so the layers normalise nothing. A moving average of the
    weights has to copy the buffers, too, or compute them with `torch.optim.swa_utils.update_bn`.
    """
    for fact in run.all("fresh")[:1]:
        layers = f"{fact['norms']} BatchNorm layer{'s' * (fact['norms'] > 1)}"
        yield f"{layers} of {fact['through']}, after step {fact['steps']:,}", fact["where"]


@rule("warning")
def trains_in_eval_mode(run):
    """After an evaluation, the training continues in evaluation mode.

    From then on dropout is off, and batch statistics are no longer updated. Call `model.train()`
    after each evaluation.
    """
    for worker in run.trained[:1]:
        live = {fact["through"]: fact for fact in worker.all("forward") if fact["live"]}
        modes = {}
        for step in worker.all("step"):
            before = modes.setdefault((step["opt"], step["through"]), step)
            if before["in_train_mode"] and not step["in_train_mode"] and step["through"] in live:
                fact = live[step["through"]]
                yield (
                    f"step {before['n']:,} had {_live(fact)}, step {step['n']:,} has none"
                ), fact["where"]


def _live(fact):
    first = fact["live"][0]
    number = fact["live"].count(first)
    return f"{number} active {first}{'s' * (number > 1)}"


@rule("note")
def loss_of_one_rank(run):
    """The printed loss is that of one rank.

    DDP averages gradients and nothing else. The line shows one part of the batch, so it is noisier
    than the training is. All-reduce the sum of the losses before one rank prints it.
    """
    losses = [losses_of(worker) for worker in run.replicas]
    if len(losses) < 2:
        return
    found, printed = {}, set()
    for worker, own in zip(run.replicas, losses, strict=True):
        passes = len(own) // max(1, worker.number_of_steps)  # a loss may have been divided by it
        for fact in worker.all("said", "logged"):
            number, names = fact["backwards"], re.search("loss", fact["text"], re.I)
            if not names or any(number not in values for values in losses):
                continue
            mean = sum(values[number] for values in losses) / len(losses)
            for text in re.findall(r"\d+\.\d{3,}", fact["text"]):
                printed.add((worker, number))
                digits = len(text.partition(".")[2])
                for factor in {1, passes}:
                    pair = [f"{factor * value:.{digits}f}" for value in (own[number], mean)]
                    if text == pair[0] != pair[1]:
                        found.setdefault((worker, number), pair)
    if len(found) > 1 and 2 * len(found) >= len(printed):  # else some other number, by chance
        (worker, number), (own, mean) = next(iter(found.items()))
        yield (
            f"{times(len(found))}; first {own} by {worker.name}, where the mean of all ranks is "
            f"{mean} (backward pass {number})"
        ), None


@rule("note")
def sync_every_microstep(run):
    """Gradients are accumulated, but every backward pass reduces them.

    Only the last micro-batch of a step must reduce. Run the forward and the backward pass of the
    earlier ones in `with model.no_sync():`.
    """
    for worker in run.trained[:1]:
        steps, passes = worker.number_of_steps, worker.counts.get("backward", 0)
        synced = [fact["sync"] for fact in worker.all("forward")]
        one = len(worker.all("first")) == 1 and len(worker.all("replicated")) == 1
        each = worker.counts.get("forward", 0) >= passes  # DDP reduces only the first of a forward
        if one and each and passes >= 2 * steps > 0 and len(run.trained) > 1 and all(synced):
            yield f"{passes:,} backward passes for {steps:,} steps", where([worker], "backward")


@rule("warning")
def average_per_micro_batch(run):
    """An average of the weights moves at each micro-batch, though they change only with a step.

    It takes the same weights several times, so it follows faster than its decay says. Update it
    once per step, after `optimizer.step()`.
    """
    sizes = {len(fact["parameters"]) for fact in run.all("first")}
    known = [] if is_sharded(run) else run.all("moved")  # parts of one model are trained as another
    moved = [(name, fact) for fact in known for name in fact["names"]
             if any(f"({size} tensors)" in name for size in sizes)]  # fmt: skip
    for name, fact in moved[:1]:
        own = r"(?i)(ema|avera|avg|teacher|shadow)\w*(\.\w+)*\.(update|step)\w*\("
        line = lines_with(run, own) or lines_with(run, r"\.lerp_\(")
        yield (
            f"{name} moved between two backward passes of step 2"
        ), next(iter(line), fact["where"])


@rule("error")
def never_cleared(run):
    """Gradients are not cleared between the steps, so each step has those of earlier ones, too.

    Call `optimizer.zero_grad()` once per step: before the backward pass, or after the step.
    """
    by_hand = lines_with(run, r"\.grad\b[^=]*[^=!<>]=(?!=)|\.grad\.\w+_\(|zero_\(|del .*\.grad\b")
    for worker in run.trained[:1]:
        windows = (worker.first("last") or {}).get("windows", [])
        sums = [since for _, passes, since, _, number in windows if since >= 2 * passes
                for _ in range(number)]  # fmt: skip
        place = where([worker], "step")
        own = place in lines_with(run, r"opt\w*\.step\(|\.step\(\w*opt")  # not an engine's
        if own and not by_hand and len(sums) > max(3, 0.8 * sum(one[-1] for one in windows)):
            yield f"one step has the gradients of {max(sums):,} backward passes", place


@rule("warning")
def schedule_too_long(run):
    """The learning rate's schedule is planned for the batches of all ranks together.

    Each rank makes only its share of the steps, so the training ends long before the schedule. Take
    the length of the loader that has the sampler, not of the dataset.
    """
    number, stops = len(run.trained), lines_with(run, r"^\s+break\b|\.should_stop\b")  # on purpose
    for worker in run.trained[:1] if number > 1 and run.status == 0 else ():
        for one in worker.all("scheduled"):
            moves = one["changes"] > 0.5 * one["calls"] and one["rate"] > 0.2 * one["top"]
            moves = moves and not stops and is_planned(run, one["where"])
            nears = [[n for n in one["numbers"] if abs(n / one["calls"] / of - 1) < 0.03]
                     for of in (1, number)]  # fmt: skip
            if moves and one["calls"] > 7 and nears[1] and not nears[0]:
                yield (
                    f"{one['type']} made {one['calls']:,} of {nears[1][0]:,} steps, and ends with "
                    f"the rate {one['rate']:.3g} of {one['top']:.3g}"
                ), one["where"]


CYCLES = ("CosineAnnealingWarmRestarts", "CyclicLR")


@rule("warning")
def scheduler_runs_ahead(run):
    """The learning rate's schedule ends long before the training.

    The scheduler steps several times per optimizer step. Accelerate's does so on purpose, once per
    process. Plan its schedule for the batches of all processes together.
    """
    for worker in run.trained[:1]:
        for one in worker.all("scheduled"):
            steps, times_each = one["steps"], round(one["calls"] / one["steps"])
            slow = one["changes"] > 0.8 * times_each * one["changed"]  # not a few milestones
            ends = one["changed"] if one["rate"] < 0.5 * one["top"] else steps
            if one["rate"] > 1.1 * one["low"] + 0.01 * one["top"] and one["type"] not in CYCLES:
                ends = one["lowest"]  # a cosine comes back
            if times_each > 1 and steps > 7 and slow and 0 < ends <= steps / times_each + 2:
                yield (
                    f"{one['calls']:,} steps of {one['type']} for {steps:,} optimizer steps: its "
                    f"rate fell from {one['top']:.3g} to {one['low']:.3g} in the first {ends:,}"
                ), one["where"]


@rule("warning")
def windows_left_over(run):
    """Gradients are accumulated, but the last ones of an epoch are not stepped on.

    If nothing zeroes them, the next epoch's first step has too many gradients; else they are lost.
    Step after an epoch's last batch, too, with that batch outside of `no_sync`; or count
    micro-batches across epochs.
    """
    for worker in run.trained[:1]:
        windows = (worker.first("last") or {}).get("windows", [])
        if len({opt for opt, *_ in windows}) != 1:
            continue
        within = [(passes, times) for _, passes, _, ends, times in windows if not ends]
        size = max(within, key=lambda one: one[1], default=(0, 0))[0]
        left = [one for one in windows if one[3] and size < one[1] < 2 * size]
        number = sum(times for *_, times in left)
        if size < 2 or number < 2 or any(passes % size for passes, _ in within if passes > size):
            continue
        _, passes, since, *_ = max(left, key=lambda one: one[-1])
        lost = since <= size
        share = (passes - size) * number / max(1, worker.counts.get("backward", 0))
        if not lost or share > 0.02:
            what = "the first {} are zeroed" if lost else "all are summed, {} too many"
            yield (
                f"a step has {size} backward passes, but the first one of {number} epochs had "
                f"{passes}: {what.format(passes - size)}"
            ), where([worker], "step")


@rule("warning")
def cleared_gradients(run):
    """Gradients are accumulated, but `zero_grad` clears them between the micro-batches.

    Only the last ones of a step count, divided as if all did. Call `zero_grad` once per
    step: after `optimizer.step()`, or before the first micro-batch.
    """
    for worker in run.trained[:1]:
        windows = (worker.first("last") or {}).get("windows", [])
        _, passes, since, *_, times = max(windows, key=lambda one: one[-1], default=(0, 0, 0, 0))
        most = 2 * times > sum(one[-1] for one in windows) > 2
        epochs = epochs_of(worker)  # with two passes on a batch, the first may have another purpose
        each = any(epoch["taken"] >= passes * epoch["did"]["step"] for epoch in epochs)
        adds = lines_with(run, r"\.grad\s*=(?!=)|\.grad\.(copy_|add_|clone)\b|\+= \w+\.grad\b")
        alone = len({opt for opt, *_ in windows}) == 1 and not adds  # by hand
        if alone and 0 < since < passes and most and each:
            yield (
                f"of the {passes} backward passes of a step, all but the last {since} are cleared"
            ), where([worker], "cleared")
