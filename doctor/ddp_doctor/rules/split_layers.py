"""Do the ranks that compute one layer together have the same batch?"""

from ..rule import rule
from .drawn_samples import loaders_of, loadings
from .wording import ranks, where


@rule("error")
def batches_differ(run):
    """Ranks that share a layer train on different batches.

    Each computes a part of the layer for all of them, so the parts of two batches are mixed. Draw
    one batch for all ranks of a tensor-parallel group: divide the samples by the rank in the
    data-parallel dimension of the mesh, `mesh["dp"].get_local_rank()`, not by the process's rank.
    """
    for number, worker in enumerate(run.replicas):
        mine = {fact["n"]: fact for fact in worker.all("declared")}
        for other in run.replicas[number + 1 :]:
            pairs = [(mine[f["n"]], f) for f in other.all("declared") if f["n"] in mine]
            pairs = [pair for pair in pairs if other.rank in pair[0]["ranks"]]
            if len(pairs) > 1 and all(one["print"] != two["print"] for one, two in pairs):
                told = loadings(run)
                made = [told[worker, n]["made"] for n in loaders_of(run) if (worker, n) in told]
                yield (
                    f"in all {len(pairs)} looked-at passes {ranks([worker, other])} gave other "
                    "inputs to a layer that they split"
                ), (made or [where([worker], "forward")])[0]
