"""Why the gradient of several processes is not that of one, as far as the facts show it.

A gradient is a dict of sketches, by parameter: see probe/comparisons.py.
"""

import math

from .wording import assigned, where

CLOSE = 1e-2  # of a ratio or a loss
SAME = 1e-3  # of a norm; fp32 sums in another order differ by some 1e-6


def gradient(fact: dict, field: str = "unclipped") -> dict[str, list[float]]:
    return dict(zip(fact["names"], fact[field], strict=True))


def added(sketches) -> list[float]:
    return [*map(sum, zip(*sketches, strict=True))]


def of_ranks(facts: list[dict], field: str = "unclipped") -> dict[str, list[float]]:
    """The gradient of all ranks. Those of their parts add up."""
    used = facts if facts[0]["parts"] else facts[:1]
    found = [gradient(fact, field) for fact in used]
    return {name: added(one[name] for one in found) for name in found[0]}


def apart(several: list[float], alone: list[float]) -> tuple[float, float | None]:
    """How far they are apart, as a share of the norm, and their ratio if that is all."""
    norm = math.hypot(*alone)
    if not norm:
        return math.hypot(*several), None
    ratio = sum(map(float.__mul__, several, alone)) / norm**2
    scaled = math.dist(several, [ratio * number for number in alone])
    return math.dist(several, alone) / norm, ratio if scaled < SAME * norm else None


def cause(run, facts, one, differ) -> tuple[str, str | None]:
    """Part of a sentence, "" if it is not known, and a line.

    `facts` are those of all ranks; `differ` has names of parameters and ratios.
    """
    number, first, line = len(facts), differ[0][0], facts[0]["where"]
    own = [gradient(fact)[first] for fact in facts]
    mean = [total / number for total in added(own)]
    unlike = not facts[0]["parts"] and any(apart(other, own[0])[0] > CLOSE for other in own)
    if unlike and apart(mean, gradient(one)[first])[0] < CLOSE:
        return ", because each rank has its own gradient: they are not averaged", line
    loss = assigned(run, where(run.trained, "backward"))
    calls = [f for f in run.trained[0].all("collective") if f["t"] < facts[0]["t"]]
    by_hand = line if run.first("replicated") or not calls else calls[-1]["where"]
    those = "all are" if len(differ) == len(one["names"]) else "these alone are"
    if _times(number, differ):
        return f", because {those} summed over {number} ranks", by_hand
    if cut := run.first("cut"):
        return ", maybe because all_gather gives no gradient back to what it gathers", cut["where"]
    if _times(1 / number, differ):
        return f", because {those} divided once too often by {number} ranks", loss
    if why := _weights(facts, one):
        return f", because {why}", loss
    return "", line


def _times(factor, differ):
    return all(ratio and abs(ratio / factor - 1) < CLOSE for _, ratio in differ)


def _weights(facts, one):
    """Which rank's batch weighs too much in the loss, if the mean over the ranks is another one."""
    lists, found = [one["losses"], *(fact["losses"] for fact in facts)], []
    if len({*map(len, lists)}) > 1 or any(None in losses for losses in lists):
        return None
    for number, (alone, *ranks) in enumerate(zip(*lists, strict=True), 1):
        mean, spread = sum(ranks) / len(ranks), max(ranks) - min(ranks)
        share = abs(mean - alone) / spread if spread > SAME * abs(alone) else 0  # else rounding
        if min(ranks) < alone < max(ranks) and share > CLOSE:
            found.append((share, number, alone, mean, ranks))
    if not found:
        return None
    _, number, alone, mean, ranks = max(found)
    told = (
        f"the ranks' losses of backward pass {number} have a mean of {mean:.4g}, but their samples "
        f"together have a loss of {alone:.4g}"
    )
    if len(ranks) == 2:
        share = (alone - ranks[1]) / (ranks[0] - ranks[1])
        rank, share = (0, share) if share < 0.5 else (1, 1 - share)
        told += f": rank {rank}'s batch weighs too much, 0.50 in place of {share:.2f}"
    return told
