"""Which rank saw which samples, and in which order."""

from collections import Counter

from ddp_doctor.recorded_run import shown
from ddp_doctor.rules.wording import ranks

from ..by_epoch import SAMPLES
from ..verdicts import check


def _whole_epochs(run):
    """Per attempt, the epochs that every rank has finished: number, and samples by rank."""
    for attempt in run.attempts:
        workers = attempt.trained
        if not workers:
            continue
        stopped = any(worker.first("raised", "fault") for worker in attempt.workers)
        if attempt is run.attempts[-1]:
            stopped |= any(fact["status"] != 0 for fact in run.all("ended"))
        begun = min(len(worker.epochs) for worker in workers)
        number = min(begun - stopped, *(len(worker.seen) for worker in workers))
        for epoch in range(number):
            seen = {worker: worker.seen[epoch] for worker in workers}
            yield workers[0].started_after + epoch + 1, seen


@check("2_multigpu")
def full_batches(run):
    """Each process takes batches of the size that was asked for.

    --batch_size is per process: with N processes, a step has N batches. Leave it as it is.
    """
    workers, asked = run.attempts[0].trained, run.asked["batch_size"]
    sizes = [len(worker.steps[0].samples) for worker in workers if worker.steps]
    if len(sizes) > 1 and max(sizes) in (asked // len(sizes), asked * len(sizes)):
        told = f"with --batch_size={asked}, each of {len(sizes)} processes took {max(sizes)}"
        return False, f"{told} samples per step"
    return (True, f"{max(sizes)} samples per step and process") if sizes else None


@check("2_multigpu", "distribute-the-data")
def shared(run):
    """Each sample is seen once per epoch, by one rank.

    More processes are faster only if each trains on its own part of the data, and the parts
    together are the whole dataset. A sampler that knows the rank and the number of ranks makes
    these parts. Give it the same dataset on all ranks, and skip no batch.
    """
    epochs = 0
    for epoch, seen in _whole_epochs(run):
        epochs += 1
        for worker, samples in seen.items():
            if strangers := samples.count(-1):
                return False, (
                    f"in epoch {epoch}, {strangers:,} of {len(samples):,} samples of {worker.name} "
                    "are not in the dataset"
                )
        times = Counter(sample for samples in seen.values() for sample in samples)
        twice = sorted(sample for sample, number in times.items() if number > 1)
        if len(twice) > -SAMPLES % len(seen):  # a sampler may repeat some to make equal shares
            who = ranks([worker for worker, samples in seen.items() if twice[0] in samples])
            return False, (
                f"in epoch {epoch}, {who} saw samples {shown(twice)} more than once: "
                f"{len(twice):,} of {SAMPLES:,}"
            )
        if len(times) < SAMPLES:
            missed = sorted(set(range(SAMPLES)) - set(times))
            return False, (
                f"in epoch {epoch}, no rank saw samples {shown(missed)}: {len(missed):,} of "
                f"{SAMPLES:,}; look for a sampler, `continue`, `break` or drop_last that skips them"
            )
    return (True, f"{SAMPLES:,} samples per epoch, in {epochs}") if epochs else None


@check("2_multigpu", "distribute-the-data")
def order_changes(run):
    """Every epoch has its own order of samples.

    The sampler shuffles by a seed and the epoch's number, so all ranks draw the same order. It does
    not count the epochs: give it the number before each epoch begins.
    """
    orders, number = {}, 0
    for epoch, seen in _whole_epochs(run):
        for worker, samples in seen.items():
            order = tuple(samples)
            known = orders.setdefault((len(seen), worker.rank), {})
            if known.setdefault(order, epoch) != epoch:  # perhaps before a restart
                return False, (
                    f"{worker.name} saw the samples of epoch {epoch} in the order of epoch "
                    f"{known[order]}: {shown(samples)}"
                )
            if samples == sorted(samples) and len(samples) > 2:
                told = f"{worker.name} saw epoch {epoch} in the dataset's order"
                return False, f"{told}: nothing shuffled them"
            number = max(number, len(known))
    return (True, f"{number} epochs, {number} orders") if number > 1 else None
