"""Which rank trains on which samples."""

from collections import defaultdict

from ..recorded_run import matched
from ..rule import rule
from .drawn_samples import (
    differ,
    epochs_of,
    indices_of,
    loaders_of,
    loadings,
    same_samples,
    samples_of,
    takes_its_slice,
    trained_on,
)
from .replicas import holds_parts, is_sharded, same_inputs
from .wording import where

ALIKE = (
    "The averaged gradient has seen less noise than you planned. Seed the random state with the"
    " rank, after the model is made; what all ranks must shuffle alike gets its own generator."
)
SORT = (
    "An index, or a label, means another sample on each rank. A set, or a listed folder, has no"
    " fixed order: use `sorted(...)`."
)


def _is_data_parallel(run):
    """Not if layers or sequences are split: then all ranks need the same batch."""
    split = any(fact.get("tensor_parallel") for fact in run.all("first"))
    ring = any(fact["inside"] for fact in run.all("peer"))
    return not split and not ring and not holds_parts(run)


@rule("error")
def same_batches(run):
    """All ranks train on identical batches.

    More processes only repeat the work of one: the averaged gradient is that of one rank. Give the
    loader a DistributedSampler, or draw the batches with a seed per rank.
    """
    if len(run.replicas) < 2 or not _is_data_parallel(run):
        return
    one, other = run.trained[:2]
    gave = {fact["loader"] for fact in one.all("forward")[:1]}
    trains = [fact for (w, n), fact in loadings(run).items() if w is one and n in gave]
    told = f"; sampler: {trains[0]['sampler']}" if trains else ""
    rows = {row for fact in one.all("forward") for row in fact["rows"]}
    inputs = {str(fact["inputs"]) for fact in one.all("forward")}
    varied = len(rows) > 1 or len(inputs) > 2  # made-up data may be alike, but for a smaller batch
    if (number := same_inputs(run)) > 1 and varied:
        yield (
            f"{one.name} and {other.name} had the same inputs in all {number} looked-at forward "
            f"passes{told}"
        ), trains[0]["made"] if trains else where([one], "forward")


@rule("warning")
def same_noise(run):
    """Every rank draws the same random numbers.

    On these inputs all ranks compute the same, so one rank would do. Seed the random state with the
    rank, after the model is made.
    """
    if len(run.replicas) < 2 or not _is_data_parallel(run) or any(same_batches(run)):
        return
    one, other = run.trained[:2]
    lines = defaultdict(list)
    for (_, line), pair in matched([one, other], "forward", "n", "where").items():
        lines[line].append(pair)
    for line, pairs in lines.items():
        drawn, there = ([str(fact["inputs"]) for fact in own] for own in zip(*pairs, strict=True))
        if len({*drawn}) == len(drawn) > 2 and drawn == there:
            yield (
                f"{one.name} and {other.name} had the same inputs in all {len(drawn)} looked-at "
                f"passes of {pairs[0][0]['through']} here, but not elsewhere"
            ), line
    if found := next(_drawn_alike(one, other), None):
        yield found


def _drawn_alike(one, other):
    """Lines that drew the same noise. Uniform numbers may decide what is dropped, and whole ones
    choose samples, of which each rank then takes its part: they count if a pass had them."""
    forward = one.all("forward")
    sizes, inputs = {f["samples"] for f in forward}, {i for f in forward for i in f["inputs"]}
    lines = {}
    for fact in one.all("drawn"):
        batch = fact["inside"] or fact["shape"][0] in sizes
        noise = fact["of"] == "normal" or (fact["of"] == "uniform" and not fact["inside"])
        if fact["print"] in inputs or (noise and batch):
            lines.setdefault(fact["where"], []).append(fact)
    for line, facts in lines.items():
        prints = [fact["print"] for fact in facts]
        there = [fact["print"] for fact in other.all("drawn") if fact["where"] == line]
        if len({*prints}) == len(prints) > 2 and {*prints} <= {*there}:
            first, last = facts[0]["step"] + 1, facts[-1]["step"] + 1
            yield (
                f"{one.name} and {other.name} drew the same numbers here in steps {first} to {last}"
            ), line, ALIKE


@rule("error")
def not_shared(run):
    """Several ranks train on the same samples of an epoch.

    They do the same work, and other samples may be left out. Give the loader a DistributedSampler,
    built from the same dataset and with the same seed on every rank.
    """
    if len(run.replicas) < 2 or not _is_data_parallel(run) or any(same_batches(run)):
        return
    one, other = run.trained[:2]
    for loader, (here, *others) in trained_on(run):
        if len(others) < len(run.trained) - 1 or takes_its_slice(run, loader):
            continue
        if here["replacement"] or here["iterable"] or any(split_differs(run)):
            continue
        if not same_samples(run, loader):  # each rank has its own part, and indices into that
            continue
        for a, b in zip(epochs_of(one, loader), epochs_of(other, loader), strict=False):
            drawn = [samples_of(run, here, a), samples_of(run, others[0], b)]
            both = len(drawn[0] & drawn[1])
            number = len(run.trained)
            repeats = a["drawn"] - len(drawn[0]) > number and a["order"] != b["order"]  # on purpose
            size = here["size"] or 0
            share = a["whole"] and number * a["drawn"] <= size + number
            own = here["divides"] or both < len(drawn[1])  # it knows its rank, or is random
            if repeats or (share and own and not here["replicas"]):
                break  # its share of the epoch, from all samples
            if not a["whole"] and 2 * both * size < len(drawn[0]) * len(drawn[1]):
                break  # half of what two random draws share: a window of an endless order
            if a["nth"] == b["nth"] and both > _padding(run, here, a):
                yield (
                    f"{one.name} and {other.name} both drew {both:,} of {len(drawn[1]):,} samples "
                    f"in one epoch; sampler: {here['sampler']}{_seeds(here, others[0])}"
                ), here["made"]


def _seeds(*loadings):
    seeds = dict.fromkeys(str(loading["seed"]) for loading in loadings)
    return f" with seeds {' and '.join(seeds)}" if len(seeds) > 1 else ""


def _padding(run, loading, epoch):
    """How many samples ranks may share to have equally many. (Accelerate fills whole batches.)"""
    number, size, drawn = len(run.trained), loading["size"] or 0, epoch["drawn"]
    if drawn >= size:
        return number
    surplus = number * drawn - size
    batches = number * -(-drawn // max(1, epoch["taken"]))  # one of each rank
    divides = loading["replicas"] == number  # a DistributedSampler, or one made of it
    return max(number, surplus if divides else min(batches, surplus))


@rule("error")
def sampler_of_another_rank(run):
    """A DistributedSampler has another rank or number of ranks than the process group.

    Samples are left out, or seen twice. Leave its `num_replicas` and `rank` out, and build it after
    `init_process_group`.
    """
    if not _is_data_parallel(run):
        return
    for (worker, _), fact in loadings(run).items():
        joined = worker.first("joined")
        if joined and fact["replicas"] and worker.facts.index(joined) < worker.facts.index(fact):
            has, needs = (fact["rank"], fact["replicas"]), (worker.rank, joined["world_size"])
            if has != needs:
                yield (
                    f"{worker.name} of {needs[1]} has the sampler of rank {has[0]} of {has[1]}"
                ), fact["made"]


@rule("error")
def dataset_differs(run):
    """Each rank has its own dataset.

    A sampler divides indices, and the same index is another sample on each rank: the ranks do not
    share one dataset. Seed what makes or shuffles the samples, in the same way on every rank.
    """
    if len(run.replicas) < 2:
        return
    for loader, facts in trained_on(run):
        sizes = sorted({fact["size"] for fact in facts if fact["size"] is not None})
        if len(sizes) > 1 and not any(fact["subset"] for fact in facts):
            shown = " and ".join(f"{size:,}" for size in sizes)
            if all(fact["replicas"] for fact in facts):  # else each has a part
                yield f"its length is {shown} on different ranks", facts[0]["made"]
            continue
        if name := _reordered(facts):
            yield (
                f"its {name!r} has the same items in another order on each rank", facts[0]["made"],
                SORT,
            )
        if any(split_differs(run)) or not all(fact["replicas"] for fact in facts):
            continue
        if found := differ(run, loader):
            number, again = found
            yield (
                f"{number} samples differ between {run.trained[0].name} and "
                f"{run.trained[1].name}; {again} that a rank saw again had not changed"
            ), facts[0]["made"]


def _reordered(facts):
    """The list or dict that says on each rank what an index or a label is, in another order."""
    first, *others = [fact["orders"] for fact in facts]
    shares = all(fact["replicas"] or fact["divides"] for fact in facts)
    for name, (items, order, *whole) in first.items():
        known = [other.get(name, [None, order]) for other in others]
        alike = all(one[0] == items for one in known) and (shares or not whole)
        if alike and any(one[1] != order for one in known):
            return name
    return None


@rule("error")
def split_differs(run):
    """Each rank has split the dataset in another way.

    What one rank holds back, another one trains on. Give `random_split` a generator with a fixed
    seed, the same on every rank.
    """
    if len(run.replicas) < 2:
        return
    for _, facts in trained_on(run):
        if len(facts) > 1 and all(fact["subset"] for fact in facts[:2]):
            one, other = ({*indices_of(run, fact, "subset")} for fact in facts[:2])
            if one != other and len(one & other) > len(run.trained):  # else padding
                yield (
                    f"of {len(one):,} samples that {run.trained[0].name} may train on, "
                    f"{run.trained[1].name} has {len(one & other):,}"
                ), facts[0]["cut"] or facts[0]["made"]


@rule("error")
def leak(run):
    """The evaluation uses samples that are trained on.

    It measures memorising, not learning. Split before you shuffle, once for all ranks, and give
    `random_split` a generator with a fixed seed.
    """
    told = loadings(run)
    trains, evaluates = loaders_of(run), {*loaders_of(run, training=False)} - {*loaders_of(run)}
    parts = {}  # what all ranks may train on, by dataset and loader: each fold has its own
    for (_, loader), fact in told.items():
        if loader in trains and fact["subset"]:
            parts.setdefault((fact["base"], loader), set()).update(indices_of(run, fact, "subset"))
    for (worker, loader), fact in told.items():
        if loader not in evaluates or not fact["subset"]:
            continue
        held = {*indices_of(run, fact, "subset")}
        own = [{*indices_of(run, told[worker, n], "subset")} for n in trains if (worker, n) in told]
        seen = [held & part for (base, _), part in parts.items() if base == fact["base"]]
        watched = any(held <= one for one in own)  # the training's own loss, beside another
        if seen and all(seen) and not (watched and len(evaluates) > 1):
            both = set.union(*seen)
            yield (
                f"{len(both) / len(held):.0%} of the {len(held):,} samples on which "
                f"{worker.name} evaluates are in some rank's training set"
            ), fact["made"]


def unexamined(run):
    """What these rules could not look at, and why."""
    if len(run.trained) > 1 and is_sharded(run):
        yield "whether the ranks' weights are equal: they hold parts, or different models"
    told = loadings(run).values()
    if any(fact["iterable"] for fact in told):
        yield "which samples a dataset gives that has no indices, or does not read them"
    trains = loaders_of(run) if len(run.replicas) > 1 else []
    shared = {n for (_, n), fact in loadings(run).items() if fact["replicas"]}
    if any(same_samples(run, loader) is None for loader in trains if loader not in shared):
        yield "whether ranks share samples: the same index gave them other contents"
    if run.trained and not told:
        yield "the samples of each epoch: no torch DataLoader was used"
