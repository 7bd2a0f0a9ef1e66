"""Do the ranks that compute one layer together have the same batch?"""

from itertools import combinations

from ..recorded_run import matched
from ..rule import rule
from .drawn_samples import trained_on
from .wording import ranks, where


@rule("error")
def batches_differ(run):
    """Ranks that share a layer train on different batches.

    Each computes a part of the layer for all of them, so the parts of two batches are mixed. Draw
    one batch for all ranks of a tensor-parallel group: divide the samples by the rank in the
    data-parallel dimension of the mesh, `mesh["dp"].get_local_rank()`, not by the process's rank.
    """
    for worker, other in combinations(run.replicas, 2):
        pairs = matched([worker, other], "declared", "n").values()
        pairs = [pair for pair in pairs if other.rank in pair[0]["ranks"]]
        if len(pairs) > 1 and all(one["print"] != two["print"] for one, two in pairs):
            made = [fact["made"] for _, facts in trained_on(run) for fact in facts]
            yield (
                f"in all {len(pairs)} looked-at passes {ranks([worker, other])} gave other "
                "inputs to a layer that they split"
            ), (made or [where([worker], "forward")])[0]
