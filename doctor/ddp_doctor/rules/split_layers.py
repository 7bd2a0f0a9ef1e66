"""Do ranks that share a model have the same batch, and one norm of its gradient?"""

from itertools import combinations

from ..recorded_run import matched
from ..rule import rule
from .drawn_samples import trained_on
from .replicas import holds_parts
from .wording import lines_with, ranks, where


@rule("error")
def untied(run):
    """Tied weights are sharded apart.

    Each unit of FSDP replaces its parameters by new shards. So a weight that layers in two units
    share is two weights from then on. Leave both layers to the unit around them.
    """
    for fact in run.all("untied"):
        yield "this unit has a parameter that an earlier one had sharded", fact["where"]


@rule("warning")
def beside_the_shards(run):
    """A parameter is not sharded, and each rank trains its own.

    It came to the model after FSDP had sharded it, so nothing averages its gradients, and a
    checkpoint has that of one rank. Add layers before you call `fully_shard`.
    """
    tables = [{f["opt"]: f["parameters"] for f in worker.all("named")} for worker in run.replicas]
    if len(tables) < 2 or not run.first("sharded") or run.first("split", "peer"):
        return
    for opt, table in tables[0].items():
        alike = all(one.get(opt) == table for one in tables)
        steps = matched(run.replicas, "step", "n", "opt")
        steps = [facts for (_, own), facts in steps.items() if own == opt]
        if not alike or not steps or not any(how == "part" for *_, how, _ in table):
            continue
        for n, (name, *_, how, _) in enumerate(table):
            if how == "outside" and all(_differ(facts, n) for facts in steps):
                *_, layer = (name or "").rpartition(".")[0].split(".")
                lines = lines_with(run, rf"\.{layer} = ") if layer else []
                yield f"`{name}` differs after all {len(steps)} looked-at steps", [None, *lines][-1]


def _differ(facts, n):
    """Whether parameter n has another value on some rank after a step."""
    return len({fact["each"][n][0] for fact in facts}) > 1


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


@rule("warning")
def clipped_by_shard(run):
    """Ranks that hold parts of one model clip by the norms of these parts.

    Each part gets another factor, so the step has another direction. Use the norm of all parts:
    `model.clip_grad_norm_` of FSDP1, or the root of the sum of all ranks' squared norms.
    """
    parts = holds_parts(run) or any(fact["sharded"] for fact in run.all("first"))
    facts = [*matched(run.replicas, "norm", "n").values()] if parts else []
    norms = [sorted(fact["value"] for fact in each) for each in facts]
    clips = any(fact["value"] > fact["most"] for each in facts for fact in each)
    if clips and len(norms) > 2 and all(one[0] < 0.999 * one[-1] for one in norms):
        told = f"{norms[0][0]:.4g} and {norms[0][-1]:.4g}"
        yield f"the ranks' norms differ in all {len(norms)} looked-at steps; first {told}", (
            facts[0][0]["where"]
        )


@rule("error")
def saved_in_parts(run):
    """One rank saves its parts of the tensors, and no rank saves the others.

    The other ranks' weights are lost. `get_model_state_dict` with `full_state_dict=True`, called by
    all ranks, returns whole tensors; `torch.distributed.checkpoint` saves all parts.
    """
    saved = [(worker, fact) for worker in run.ranks for fact in worker.all("saved")]
    parts = [(w, fact) for w, fact in saved if fact.get("shards") and not fact["together"]]
    begun = [(worker.first("first") or {}).get("parameters") for worker in run.ranks]
    whole = len({str(one) for one in begun}) == 1  # the group that divides them has one rank
    if len(run.ranks) > 1 and not whole and len({worker for worker, _ in parts}) == 1:
        worker, fact = parts[0]
        yield f"{worker.name} saves its parts of {fact['shards']} tensors", fact["where"]
