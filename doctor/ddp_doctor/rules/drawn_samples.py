"""What the loaders of a run drew: views of the facts that the rules about data share."""


def loadings(run):
    """The first description of each loader, by rank's worker and the loader's number."""
    found = {}
    for worker in run.trained:
        for fact in worker.all("loading"):
            found.setdefault((worker, fact["loader"]), fact)
    return found


def epochs_of(worker, loader=None, training=True):
    """The iterations in which it trained, or only evaluated."""
    return [
        fact
        for fact in worker.all("epoch")
        if loader in (None, fact["loader"]) and fact["drawn"]
        if bool(fact["did"]["step"]) == training and (training or fact["did"]["evaluation"])
    ]


def loaders_of(run, training=True):
    epochs = [epoch for worker in run.trained for epoch in epochs_of(worker, None, training)]
    return [*dict.fromkeys(epoch["loader"] for epoch in epochs)]


def trained_on(run):
    """Each loader of the training, with what the ranks that have it tell of it."""
    told = loadings(run)
    for loader in loaders_of(run):
        if facts := [told[w, loader] for w in run.trained if (w, loader) in told]:
            yield loader, facts


def stepped_on(run):
    """The loaders that gave a batch before a step, with or without indices, ended or not."""
    facts = [fact for worker in run.trained for fact in worker.all("epoch", "step")]
    stepped = [fact for fact in facts if fact["kind"] == "step" or fact["did"]["step"]]
    return {fact["loader"] for fact in stepped} - {None}  # a step may use no loader's batch


def indices_of(run, fact, key="file"):
    return run.indices(fact[key]) if fact.get(key) else []


def samples_of(run, loading, epoch):
    """The samples of an epoch, as indices of the whole dataset."""
    of = indices_of(run, loading, "subset")
    return {of[index] if of else index for index in indices_of(run, epoch)}


def same_samples(run, loader):
    """Whether an index is the same sample on two ranks; None if that is not known.

    By the names that the datasets list, or by the contents, which augmentation makes differ.
    """
    facts = [loadings(run).get((worker, loader)) for worker in run.trained[:2]]
    if len(facts) < 2 or None in facts:
        return False
    one, other = (fact["lists"] for fact in facts)
    equal = {
        name: not {*one[name]["smallest"]}.isdisjoint(other[name]["smallest"])
        for name in one.keys() & other.keys()
    }
    if not all(equal.values()):
        return False
    if any(one[name]["whole"] and other[name]["whole"] for name in equal):
        return not differ(run, loader)
    here, there = (_known(run, *both) for both in zip(run.trained, facts, strict=False))
    common = here.keys() & there.keys()
    alike = sum(here[index] == there[index] for index in common)
    return None if len(common) > 7 and alike <= len(common) / 8 else True


def takes_its_slice(run, loader):
    """Whether all ranks draw the same batches, and each trains on a part of them."""
    one, other = run.trained[:2]
    size = loadings(run)[one, loader]["batch_size"] or 0
    orders = [[epoch["order"] for epoch in epochs_of(worker, loader)] for worker in (one, other)]
    passes = one.all("forward")  # not all are recorded
    passes = [fact for fact in passes if fact["loader"] == loader] or passes
    most = max((fact["samples"] for fact in passes), default=size)
    return orders[0] == orders[1] and most * len(run.trained) <= size


def _known(run, worker, loading):
    """The fingerprint of each sample, by its index of the whole dataset."""
    of, seen = indices_of(run, loading, "subset"), contents_of(worker, loading["loader"])
    return {of[index] if of else index: prints[0] for index, prints in seen.items()}


def differ(run, loader):
    """How many samples differ between two ranks, though their index is the same, and how many did
    not change when a rank saw them again. None unless all do, or most: then many were seen again.
    """
    one, other = (contents_of(worker, loader) for worker in run.trained[:2])
    common = one.keys() & other.keys()
    again = [prints for seen in (one, other) for prints in seen.values() if len(prints) > 1]
    if len(common) > 7 and len(again) > 2 and all(len(set(prints)) == 1 for prints in again):
        number = sum(one[index][0] != other[index][0] for index in common)
        most = number > len(common) / 2 and len(again) > 7  # a shuffle leaves some in their place
        return (number, len(again)) if most or number == len(common) else None
    return None


def contents_of(worker, loader):
    """The fingerprints of each sample, every time that it was seen."""
    seen = {}
    for fact in worker.all("content"):
        if fact["loader"] == loader:
            for index, row in zip(fact["indices"], fact["rows"], strict=True):
                seen.setdefault(index, []).append(row)
    return seen
