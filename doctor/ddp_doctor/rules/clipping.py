"""Are gradients clipped when it counts?"""

from ..rule import rule


@rule("error")
def clip_before_unscale(run):
    """Gradients are clipped while the GradScaler's factor is in them.

    The norm is thousands of times too large, so every step is clipped to almost nothing. Call
    `scaler.unscale_(optimizer)` before you clip.
    """
    for fact in run.all("clipped")[:1]:
        yield f"clipped while multiplied by {fact['scale']:,.0f}", fact["where"]


@rule("warning")
def clip_without_effect(run):
    """Gradients are clipped after the step, or before the backward pass, so nothing is clipped.

    Clip between `loss.backward()` and `optimizer.step()`.
    """
    for worker in run.trained[:1]:
        facts = worker.all("norm", "step", "backward")
        events = [fact for fact in facts if fact["kind"] != "norm" or fact["most"] < float("inf")]
        places = [n for n, fact in enumerate(events) if fact["kind"] == "norm"][:8]
        around = [(events[n - 1]["kind"], events[n + 1]["kind"]) for n in places
                  if 0 < n < len(events) - 1]  # fmt: skip
        windows = (worker.first("last") or {}).get("windows", [])
        cleared = all(since <= passes for _, passes, since, *_ in windows)
        if len(around) > 2 and {*around} == {("step", "backward")} and windows and cleared:
            yield f"{len(around)} of the looked-at calls, with no backward pass since a step", (
                events[places[0]]["where"]
            )
