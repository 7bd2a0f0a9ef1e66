"""What an epoch draws, beside the samples of other ranks."""

from collections import defaultdict

from ..rule import rule
from .drawn_samples import epochs_of, indices_of, loaders_of, loadings
from .wording import lines_with


@rule("warning")
def every_epoch_alike(run):
    """Every epoch has the same order of samples.

    The sampler shuffles by the epoch's number, which never changed, or from a seed that every
    epoch sets again. Call `set_epoch(epoch)` of the DistributedSampler before each epoch; seed a
    generator or sampler of your own once, or with the epoch.
    """
    alike = defaultdict(list)  # a script may make its loader anew for each epoch, at one line
    for (worker, loader), fact in loadings(run).items():
        anew = None if fact["subset"] else fact["made"]
        alike[worker, fact["base"], anew or loader].append(fact)
    for (worker, *_), facts in alike.items():
        fact, all_of = facts[0], [e for one in facts for e in epochs_of(worker, one["loader"])]
        epochs = [epoch for epoch in all_of if epoch["drawn"] > 8]
        whole = [epoch for epoch in epochs if epoch["whole"]] or epochs
        order = indices_of(run, whole[0]) if whole and fact["draws"] else []
        varies = fact["shuffle"] or order != sorted(order)  # by length may be on purpose
        if not varies or fact["iterable"]:
            continue
        number, drawn = 2, max((_turn(run, epoch) for epoch in epochs), default=0)
        if len(whole) > 1 and len({epoch["order"] for epoch in whole}) == 1:
            number, drawn = len(whole), whole[0]["drawn"]
        if drawn:
            told = "" if fact["epoch"] is None else "; set_epoch was not called"
            told += "" if fact["shuffle"] else f"; {fact['sampler']} shuffles"
            same = f"{number} epochs drew the same {drawn:,} samples in one order"
            yield f"{same}{told}", fact["where"]


def _turn(run, epoch):
    """How many samples an endless sampler drew before they came again in the same order, or 0."""
    drawn = indices_of(run, epoch)
    turn = len({*drawn})
    alike = len(drawn) >= 2 * turn and drawn[turn:] == drawn[:-turn]
    return turn if turn > 8 and alike else 0


@rule("error")
def file_shared_by_workers(run):
    """Several workers of a loader read a file that the dataset had opened before they started.

    They share its position: what one reads, moves where the others read, so samples are mixed up
    or broken. Keep the path in `__init__`, and open the file in `__getitem__`, once per worker.
    """
    for fact in run.all("together")[:1] if not lines_with(run, r"Lock\(\)") else ():
        for name in fact["names"]:
            line = next(iter(lines_with(run, rf"self\.{name}\s*=.*\(")), fact["made"])
            if line not in lines_with(run, r"open\(.*[\"'][awx]"):  # they only write
                yield f"{fact['workers']} workers read `{name}`, and its position moved", line


@rule("note")
def eval_padded(run):
    """The evaluation counts some samples twice.

    DistributedSampler repeats samples until all ranks have the same number. Let each of N ranks
    take every N-th sample instead, and divide summed losses by the size of the dataset.
    """
    for (_, loader), fact in loadings(run).items():
        evaluates = loader in loaders_of(run, training=False) and loader not in loaders_of(run)
        rest = -(fact["size"] or 0) % (fact["replicas"] or 1)
        if evaluates and rest and not fact["drop_last"]:
            yield (
                f"{fact['size']:,} samples on {fact['replicas']} ranks: {rest} twice"
            ), fact["where"]


@rule("note")
def loader_restarts(run):
    """A loader is started only to look at its first batch.

    Every `next(iter(loader))` starts its workers and draws a batch, and throws both away.
    """
    for worker in run.trained[:1]:
        left = [
            fact
            for fact in worker.all("epoch")
            if fact["taken"] == 1 and not fact["whole"] and not any(fact["did"].values())
        ]
        if len(left) > 1:
            yield f"{len(left)} iterations were left after one batch", left[0]["where"]


@rule("warning")
def first_batch_only(run):
    """Each step begins the loader anew, and takes its first batch.

    `next(iter(loader))` makes a new iterator, here with the same order each time. The other samples
    are not trained on: write `for batch in loader`, or call `iter` once per epoch.
    """
    for (worker, loader), fact in loadings(run).items():
        begun = defaultdict(list)
        for epoch in epochs_of(worker, loader):
            part = epoch["drawn"] * (fact["replicas"] or 1) < (fact["size"] or 0)
            if part and epoch["taken"] == 1 and not (epoch["whole"] or epoch["did"]["evaluation"]):
                begun[epoch["order"]].append(epoch["where"])
        if len(lines := max(begun.values(), key=len, default=[])) > 4:
            yield f"{len(lines)} steps had the same batch", lines[-1]


@rule("warning")
def workers_keep_old(run):
    """Persistent workers do not see what the script changes in the dataset.

    They have the copy with which they began, as of the first epoch. Use
    `persistent_workers=False`, or keep the value in a tensor in shared memory: `share_memory_()`.
    """
    for fact in run.all("outdated"):
        names = " and ".join(f"`{name}`" for name in fact["names"])
        yield f"{names} of {fact['dataset']} changed before epoch {fact['nth'] + 1}", fact["where"]


@rule("warning")
def repeated_samples(run):
    """An iterable dataset yields the same samples in several workers of a loader.

    Each worker has a copy of the dataset, so an epoch has every sample once per worker. Let each
    yield its part: see `torch.utils.data.get_worker_info`.
    """
    for worker in run.trained[:1]:
        epochs = defaultdict(list)
        for fact in worker.all("yielded"):
            epochs[fact["loader"], fact["nth"], fact["workers"]].append(fact["print"])
        for (loader, _, number), prints in epochs.items():
            begins = range(0, min(len(prints), 8) - number + 1, number)
            turns = [{*prints[begin : begin + number]} for begin in begins]
            if len(set.union(*turns, set())) == len(turns) > 1:  # another one in each turn
                told = f"in {len(turns)} turns, the {number} workers yielded the same batch"
                yield told, loadings(run)[worker, loader]["made"]
