"""Does one rank's part of the samples decide something?"""

from ..recorded_run import matched
from ..rule import rule
from .drawn_samples import epochs_of, loadings
from .wording import lines_with, totals_by_length

JOINING = ("all_reduce", "reduce", "gather", "all_gather", "all_to_all")
MOST_CALLS = 20_000  # that the probe writes as facts


@rule("warning")
def metric_of_one_rank(run):
    """A scheduler gets another metric on each rank.

    Sooner or later it lowers the learning rate on one rank only, and the replicas differ. Give it
    the mean over all ranks: all-reduce sum and count first.
    """
    if len(run.replicas) < 2 or not run.first("replicated"):
        return
    for (n,), facts in matched(run.replicas, "judged", "n").items():
        one, other = (fact["value"] for fact in facts[:2])
        if abs(one - other) > 1e-3 * max(abs(one), abs(other)):
            yield (
                f"ReduceLROnPlateau got {one:.4g} on rank 0 and {other:.4g} on rank 1, in call {n}"
            ), facts[0]["where"]


@rule("warning")
def decision_of_one_rank(run):
    """One rank's part of the evaluation chooses the checkpoint.

    The other ranks evaluated other samples, so another checkpoint may be the best, and the choice
    uses only a part of the samples. All-reduce sum and count of the metric before you compare.
    """
    for worker in run.replicas[:1] if run.first("replicated") else ():
        alone = []
        for loading, epoch, end in _unjoined(run, worker):
            saves = [f for f in worker.all("saved") if epoch["t"] < f["t"] < end]
            alone += [(loading, epoch, fact["where"] or "") for fact in saves]
        files = {where.rpartition(":")[0] for _, _, where in alone}
        pattern = r"\bif\b.*(\bbest|_best\b).*[<>]|\bif\b.*[<>].*(\bbest|_best\b)"
        lines = [line for file in sorted(files) for line in lines_with(run, pattern, file)]
        if lines:
            loading, epoch, _ = alone[0]
            number = len(epochs_of(worker, loading["loader"], training=False))
            yield (
                f"{worker.name} evaluates {epoch['drawn']} of {loading['size']} samples, {number} "
                "times, and no collective joins what the ranks found"
            ), lines[0]


@rule("error")
def share_by_whole(run):
    """A sum over one rank's share of the samples is divided by the size of the whole dataset.

    With N ranks, an accuracy or a loss is about N times too small. All-reduce the sum first, or
    divide by the number of samples that the rank has seen.
    """
    for worker in run.replicas[:1]:
        for training in (True, False):
            for loading, epoch, _ in _unjoined(run, worker, training)[:1]:
                seen = f"{worker.name} saw {epoch['drawn']:,} of {loading['size']:,} samples"
                lines = totals_by_length(run, epoch["where"])
                yield from [(seen, line) for line in lines[:1]]


def _unjoined(run, worker, training=False):
    """A rank's epochs over its share, and when the next iteration over a loader begins.

    None if a collective joins what the ranks found in one, or if there were too many to know.
    """
    begins = [fact["t"] for fact in worker.all("loading")] + [float("inf")]
    sent = worker.all("collective", "peer")
    joins = [f["t"] for f in sent if f["kind"] == "peer" or f["what"].startswith(JOINING)]
    found = []
    for epoch in epochs_of(worker, training=training):
        loading = loadings(run)[worker, epoch["loader"]]
        begin = max(t for t in begins if t < epoch["t"])
        end = min(t for t in begins if t > epoch["t"])
        if epoch["whole"] and loading["replicas"] == len(run.replicas):
            if any(begin < t < end for t in joins):
                return []
            found.append((loading, epoch, end))
    return found if 0 < worker.counts.get("call", 0) <= MOST_CALLS else []
