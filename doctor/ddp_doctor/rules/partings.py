"""Why replicas differ: what happened since they were equal."""

from ..recorded_run import shown
from .wording import lines_with, ranks

MISSING = {
    "added": "were added after DDP wrapped the model",
    "frozen": "were frozen when DDP wrapped the model",
    "outside": "are in no DDP object",
}
ADVICE = {
    "missing": "DDP's reducer has the parameters that the model had, and that required gradients,"
    " when it was wrapped. Add, replace and unfreeze parameters first, and wrap the model"
    " then; wrap it anew when you unfreeze some later. A second model needs a DDP object, too.",
    "no_sync": "In the first backward pass of a forward pass outside of `no_sync`, DDP reduces what"
    " has accumulated. This must be the last one before `optimizer.step()`.",
    "bypass": "DDP prepares the reduction in its own `forward`. Call the DDP object, and let its"
    " model's `forward` call the method that you need.",
    "rates": "Averaged gradients make equal steps only with equal learning rates. Give a scheduler"
    " the metric's mean over all ranks, and set rates on all ranks alike.",
    "write": "DDP broadcasts weights once, when it wraps the model. What changes them later must do"
    " so on every rank, from equal values; or broadcast them afterwards.",
}


def why(run, opt, step, steps):
    """Evidence, a line and advice, each perhaps None, for ranks that differ after this step.

    `steps`: those that were looked at, by number and optimizer, with the fact of each rank.
    """
    facts = steps[step, opt]
    names = [_named(*both, opt) for both in zip(run.trained, facts, strict=True)]
    before = max((n for n, one in steps if one == opt and n < step), default=0)
    each = [fact.get("each") for fact in facts]
    if not all(each) or len({str([row[0] for row in own]) for own in names}) > 1:
        return None
    pairs = enumerate(zip(*each, strict=False))
    differ = [k for k, prints in pairs if len({weight for weight, _ in prints}) > 1]
    apart = [k for k in differ if len({own[k][1] for own in each}) > 1]  # their gradients differ
    if not differ or not any(row[1] for row in names[0]):
        return None
    rows = [names[0][k] for k in apart or differ]
    missing = [row for row in rows if row[4] != "reduced"] if apart else []
    equal = f" are equal after step {before} and" if before else ""
    called = [row[0] or "a parameter without a name" for row in missing or rows]
    text = f"{ranks(run.trained)}{equal} differ after step {step}: "
    text += f"{shown(called)} ({len(called)} of {len(names[0])} parameters)"
    if missing:
        _, _, _, wrap, how, place = next((row for row in missing if row[5]), missing[0])
        lines = lines_with(run, r"\.requires_grad = (?!False)") if how == "frozen" else []
        place = place or (lines[0] if len(lines) == 1 else None)  # the only one that unfreezes
        text += f"; DDP does not reduce their gradients, because they {MISSING[how]}"
        return text, place or wrap or facts[0]["where"], ADVICE["missing"]
    passes = {row[0]: row for row in facts[0]["passes"]}
    if apart and (own := passes.get(rows[0][2])):
        _, without, synced, last, line = own
        if not without + synced:
            bypass = run.first("bypass")
            told = f"; the forward pass calls {bypass['through']}" if bypass else ""
            text += f"; no pass went through the DDP object of {rows[0][1]} before this step{told}"
            return text, bypass["where"] if bypass else rows[0][3], ADVICE["bypass"]
        if not last:
            text += f"; {without} of {without + synced} forward passes since the step before, also"
            text += " the last one, ran in no_sync"
            switched = lines_with(run, "require_backward_grad_sync = ")
            return text, line or (switched or [facts[0]["where"]])[0], ADVICE["no_sync"]
    if apart:
        return None
    text += "; their gradients are equal on all ranks"
    if len({str(fact["rates"]) for fact in facts}) > 1:
        rates = " and ".join(f"{max(fact['rates']):g}" for fact in facts[:2])
        place = (run.first("judged") or facts[0])["where"]
        return f"{text}, and the learning rates are {rates}", place, ADVICE["rates"]
    return _written(run, opt, before, step, text)


def _named(worker, fact, opt):
    found = [one for one in worker.all("named") if one["opt"] == opt and one["t"] <= fact["t"]]
    return found[-1]["parameters"] if found else []


def _written(run, opt, before, step, text):
    """Equal gradients and rates, but other weights: something else writes to them."""
    who, place = [], None
    for worker in run.trained:
        changes = [f for f in worker.all("changed") if f["opt"] == opt and before <= f["n"] <= step]
        writes = [f for f in worker.all("written") if f["opt"] == opt]
        who += [worker] if changes or writes else []
        place = place or next((f["where"] for f in writes if f["where"]), None)
    told = ", so something other than the step changed the weights"
    if who and len(who) < len(run.trained):
        told += f" of {ranks(who)} only"
    return f"{text}{told}", place, ADVICE["write"]
