"""What the lessons of beyond/ do otherwise than multinode.py."""

import math

from ddp_doctor.recorded_run import shown
from ddp_doctor.rules.wording import ranks

from ..verdicts import check
from .equal_weights import near
from .evidence import and_ending

RATE, MOMENTUM = 1e-3, 0.9  # of the lessons' SGD
SYNC_EVERY = 10  # steps, in beyond/local_sgd.py


@check("beyond_scale_lr", "multiply-the-rate", "scale_lr")
def rate_grows(run):
    """The learning rate is 0.001 times the number of processes.

    N processes take N batches per step, so an epoch has an Nth of the steps. The world size is
    known once the process group exists. Do not write a number of processes into the script.
    """
    workers = run.attempts[0].trained
    facts = workers[0].all("gradient") if workers else []
    if len(facts) < 2 or not any(facts[0]["used"]):
        return None
    moved = math.dist(facts[0]["weights"], facts[1]["weights"])
    rate = moved / math.hypot(*facts[0]["used"])
    told = f"{len(workers)} processes; the first step was {rate:.4f} times the gradient"
    return math.isclose(rate, RATE * len(workers), rel_tol=1e-3), told


@check("beyond_zero", "shard-the-state", "zero")
def state_is_divided(run):
    """One process of a node has the optimizer's state of a parameter; the checkpoint has all.

    Momentum is as large as the weights, and Adam's state is twice as large. A process that updates
    a part of the weights, and sends them to the others, needs that part of the state alone. Before
    a process saves, it must get the parts of the others.
    """
    workers, owners = run.attempts[0].trained, {}
    for worker in workers:
        for tensor in worker.all("step")[-1]["state"]:
            if tensor in owners:
                both = ranks([owners[tensor], worker])
                return False, f"{both} have the optimizer's state of the same parameter"
            owners[tensor] = worker
    if workers and not owners:
        return False, "no process has a state of its optimizer"
    for save in [save for save in run.saves if save.attempt == 0 and save.step]:
        for worker in workers:
            then = [fact for fact in worker.all("step") if fact["n"] == save.step["n"]]
            if then and not save.prints.issuperset(then[0]["state"]):
                return False, f"{save.worker.name} saved without the state of {worker.name}"
    return (True, f"{len(owners)} tensors on {len(workers)} ranks") if owners else None


@check("beyond_uneven", "answer-for-finished-ranks", "uneven")
def trains_to_the_end(run):
    """Ranks with unequal numbers of batches train to the end of each epoch.

    A rank that has no batch left calls no more collectives, and the others wait for it. Keep the
    shares as they are: a finished rank must take part until all ranks are done.
    """
    batches = [len(worker.epochs[0]) for worker in run.attempts[0].trained if worker.epochs]
    told = f"in epoch 1 the ranks made {', '.join(map(str, batches))} steps{and_ending(run)}"
    failed = run.crash or run.first("hung", "late")
    return (len(set(batches)) > 1 and not failed, told) if batches else None


@check("beyond_uneven", "share-the-optimizers-state", "uneven")
def trains_one_model(run):
    """All ranks train the same model, with all steps of the rank that has the most.

    A rank without a batch makes no step. At the end of the epoch it gets the weights of the last
    rank. The optimizer has a state, too.
    """
    compared = 0
    for attempt in run.attempts:
        if not attempt.trained:
            continue
        longest = max(attempt.trained, key=lambda worker: len(worker.steps))
        for other in attempt.trained:
            for epoch, both in enumerate(zip(longest.epochs, other.epochs, strict=False)):
                for number, (mine, theirs) in enumerate(zip(*both, strict=False), 1):
                    compared += 1
                    if mine.fact["parameters"] != theirs.fact["parameters"]:
                        when = f"step {number} of epoch {longest.started_after + epoch + 1}"
                        return False, f"{ranks([other, longest])} have different weights in {when}"
        ends = {epoch: steps[-1].fact for epoch, steps in enumerate(longest.epochs, 1)}
        for save in [save for save in run.saves if save.attempt == attempt.number]:
            newest = ends.get(save.epochs - longest.started_after)
            if newest and not save.prints.issuperset(newest["parameters"] + newest["state"]):
                told = f"after epoch {save.epochs}, {save.worker.name} saved other weights or"
                return False, f"{told} another state than those of {longest.name}, after all steps"
    return (True, f"equal after each of {compared} steps") if compared else None


@check("beyond_local_sgd", "average-the-weights", "local_sgd")
def averages_now_and_then(run):
    """Each rank trains its own copy; every tenth step, each copy becomes the mean of all.

    Between two averages the copies must differ, or all ranks still communicate in every step. An
    average is the sum divided by the world size. Count the steps over all epochs, also those before
    a restart.
    """
    steps, weights, equal = _equal(run.attempts[0])
    if len(steps) <= SYNC_EVERY:
        return None
    told = f"the weights were equal before steps {shown([n + 1 for n in sorted(equal)], 5)}"
    if len(equal) > len(steps) / 4 or not equal.issuperset(range(0, len(steps), SYNC_EVERY)):
        return False, told
    alone = [
        [w + MOMENTUM * (w - v) - RATE * g for v, w, g in zip(*rank, strict=True)]
        for rank in zip(*weights[SYNC_EVERY - 2 : SYNC_EVERY],
                        [fact["used"] for fact in steps[SYNC_EVERY - 1]], strict=True)
    ]  # fmt: skip
    mean = [sum(column) / len(alone) for column in zip(*alone, strict=True)]
    if not near(weights[SYNC_EVERY][0], mean):
        return False, f"{told}; before step {SYNC_EVERY + 1} they were not the mean of the copies"
    again, _, then = _equal(run.attempts[-1])
    every = range(SYNC_EVERY, len(again), SYNC_EVERY)
    if len(steps) % SYNC_EVERY and run.attempts[1:] and every and then.issuperset(every):
        return False, f"{told}; after the restart, the steps were counted from 0 again"
    return True, told


def _equal(attempt):
    """The ranks' gradient facts by step, their weights, and the steps before which these agree."""
    steps = [*zip(*[worker.all("gradient") for worker in attempt.trained], strict=False)]
    weights = [[fact["weights"] for fact in facts] for facts in steps]
    equal = [n for n, all_of in enumerate(weights) if all(near(one, all_of[0]) for one in all_of)]
    return steps, weights, {*equal}


@check("beyond_random_seed_offset", "offset-the-seed", "random_seed_offset")
def draws_its_own(run):
    """In each epoch, each rank draws its own samples from the whole data set.

    A generator with the same seed draws the same samples. So each rank and each epoch needs a seed
    that no other has. With `epoch + rank`, rank 1 draws in epoch 1 what rank 0 draws in epoch 2.
    """
    known = {}
    workers = run.attempts[0].trained
    for worker in workers:
        for epoch, samples in enumerate(map(tuple, worker.seen), 1):
            if samples in known:
                return False, f"{worker.name} drew in epoch {epoch} what {known[samples]} had drawn"
            known[samples] = f"{worker.name} in epoch {epoch}"
    for worker in [worker for attempt in run.attempts[1:] for worker in attempt.trained]:
        first = tuple(worker.seen[0]) if worker.seen else ()  # the share may be another one
        for drawn, by in known.items():
            alike = first and first[: len(drawn)] == drawn[: len(first)]
            if alike and by.startswith(f"{worker.name} "):
                return False, f"after the restart, {worker.name} drew what {by} had drawn"
    drawn = [set(worker.seen[0]) for worker in workers if worker.seen]
    if len(drawn) < 2:
        return None
    common = len(drawn[0] & drawn[1])
    return common > 0, f"{len(known)} draws; in epoch 1, {common} samples by both rank 0 and rank 1"
