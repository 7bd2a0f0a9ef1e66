"""What each process keeps and sends if a model is divided, beside the lesson's script."""

import operator
import os

from ..verdicts import check
from .evidence import and_ending

NO_STEP = "no process has made a step: the module must start the training itself"


def _kept(run):
    """What each rank has in memory at its last step, and the lesson's: of the newest run."""
    acts = [
        [[w.all("kept")[-1] for w in attempt.trained if w.first("kept")] for attempt in both]
        for both in zip(run.attempts, run.reference.attempts, strict=False)
    ]
    return next((both for both in reversed(acts) if all(both)), acts[0])


def _beside(run, words, *kinds, shown="{:,}".format, differ=operator.ne):
    """Compare these kinds of numbers, rank by rank, with those of the lesson's script."""
    mine, right = _kept(run)
    if not mine and not run.crash:
        return False, f"{NO_STEP}{and_ending(run)}"
    for rank, (has, wants) in enumerate(zip(mine, right, strict=False)):
        for kind in kinds:
            told = words.format(rank, shown(has[kind]), kind)
            if differ(has[kind], wants[kind]):
                return False, f"{told}; the lesson's {shown(wants[kind])}"
    return (True, told) if mine and right else None


def _keeps(run, *kinds):
    words = "rank {} keeps {} numbers of {}"
    return _beside(run, words, *kinds, differ=lambda has, wants: has > 1.1 * wants)


@check("parallel_zero", "shard-the-state", "parallel")
def keeps_its_state(run):
    """Each process keeps its share of the optimizer's state.

    An optimizer keeps state for the parameters that it is given: give it this process's shard.
    """
    return _keeps(run, "state")


@check("parallel_zero", "scatter-the-gradients", "parallel")
def keeps_its_gradients(run):
    """Each process keeps its share of the gradients until the optimizer steps.

    A reduce-scatter adds up over all processes, and leaves each its part of the sum. What is not
    part of that can go before the step: set it to None.
    """
    return _keeps(run, "gradients")


@check("parallel_fsdp", "shard-each-block", "parallel")
def keeps_its_weights(run):
    """Each process keeps its share of the weights, the gradients and the optimizer's state.

    Between two steps, a process needs only the weights that it updates itself. FSDP gathers the
    others while it computes with them. An optimizer that is made before the weights are divided
    keeps the whole ones.
    """
    found = _keeps(run, "weights", "gradients", "state")
    mine, right = (len(each.all("sharded")) for each in (run, run.reference))
    if found and found[0] and mine < right:
        return False, f"all ranks together divide {mine} modules, the lesson's {right}"
    return found


@check("parallel_fsdp", "send-once-per-step", "parallel")
def sends_its_sums(run):
    """In each step, a process sends each of its sums once, and to the same ranks as the lesson's.

    Count: how often per step, and among which ranks? The last micro-batch is enough, with one sum
    for each module that is divided.
    """
    return _beside(run, "rank {} sends, per step, {}", "sums", shown=_sums)


def _sums(kept):
    return "; ".join(f"{what}: {number}" for what, number in sorted(kept.items())) or "none"


@check("parallel_memory", None, "parallel")
def computes_again(run):
    """The backward pass computes the activations of each block again.

    Then only what enters a block is kept from the forward pass. Wrap each block by itself, not all
    of them together, in torch.utils.checkpoint.
    """
    found = _beside(run, "in a step, rank {} calls {} layers again", "again")
    if found and found[0]:  # all at once would need the memory that this should save
        turns = "in a step, the number of turns in which rank {} computes layers again is {}"
        return _beside(run, turns, "moments")
    return found


@check("parallel_fsdp", None, "parallel")
def reads_its_share(run):
    """In each step, a process reads as many sequences as in the lesson.

    All processes divide the batch, also those that have the same shards. With a node's ranks as its
    group, a loader would divide it among these alone, and each node would compute all of it.
    """
    workers, others = (each.attempts[0].trained for each in (run, run.reference))
    for worker, other in zip(workers, others, strict=False):
        for number, pair in enumerate(zip(worker.steps, other.steps, strict=False), 1):
            has, wants = (len(step.samples) for step in pair)
            if has != wants:
                told = f"in step {number}, {worker.name} reads {has} sequences"
                return False, f"{told}, the lesson's {wants}"
    return (True, f"on {len(workers)} ranks") if workers and others else None


@check("parallel_dcp", "save-shards", "parallel")
def saves_its_shards(run):
    """Each process saves the shards that it keeps, and none gathers whole weights for it.

    All processes call torch.distributed.checkpoint's save, with the sharded tensors of the model
    and of the optimizer's state.
    """
    workers = run.attempts[0].trained
    for fact in [fact for w in workers for fact in w.all("saved") if fact["together"]]:
        for part in fact["parts"]:
            for what, share in (("weights", part["weights"]), ("state", part["state"])):
                if share is not None and share < 1:
                    told = f"{share:.0%} of its shards of the optimizer's {what}"
                    return False, f"{run.who(fact)} saves {told}"
    saved = [worker for worker in workers if any(fact["together"] for fact in worker.all("saved"))]
    told = f"{len(saved)} of {len(workers)} processes save shards"
    return (len(saved) == len(workers), told) if workers else None


@check("parallel_dcp", "save-shards", "parallel")
def names_whole_folders(run):
    """The small file is replaced when the folder that it names is whole.

    After a kill, it says which shards to load. DCP writes .metadata last, when all ranks have
    written theirs: replace the file after that, and delete the older folder after that. An
    asynchronous save gives a future to wait for.
    """
    pairs, workers = [], run.attempts[0].trained
    for node in dict.fromkeys(worker.node for worker in workers):
        pids = {worker.process["pid"] for worker in workers if worker.node == node}
        here = [fact for fact in run.all("renamed", "removed") if fact["pid"] in pids]
        files = [fact for fact in here if fact["path"].endswith(".pt")]
        whole = [fact for fact in here if fact["path"].endswith("/.metadata")]
        folders, gone = ([f for f in whole if f["kind"] == kind] for kind in ("renamed", "removed"))
        pairs += zip(folders, files, strict=False)
        for fact, file in zip(gone, files[1:], strict=False):
            if fact["t"] < file["t"]:
                told = f"{run.who(fact)} deleted a folder while {file['path']} still named it"
                return False, told
    for folder, file in pairs:
        if file["t"] < folder["t"]:
            told = f"{run.who(file)} replaced {file['path']}"
            return False, f"{told} before {folder['path']} was there"
    return (True, f"{len(pairs)} times") if pairs else None


@check("parallel_dcp", "share-with-a-new-node", "parallel")
def shares_metadata_last(run):
    """A node that gets shards from another gets .metadata last.

    Without it a folder is not whole. If the copy is interrupted after .metadata has come, the next
    start takes half a folder for a whole one.
    """
    number = 0  # of folders
    for worker in [worker for attempt in run.attempts[1:] for worker in attempt.trained]:
        whole = {}
        for fact in worker.all("opened", "renamed"):
            folder, name = os.path.split(fact["path"])
            if name.startswith(".metadata"):
                whole[folder] = name
            elif folder in whole:
                return False, f"{worker.name} wrote {fact['path']} after {whole[folder]}"
        number += len(whole)
    return (True, f"in {number} folders") if number else None


@check("parallel_dcp", "save-in-the-background", "parallel")
def saves_meanwhile(run):
    """Training continues while the shards are written, and older shards are deleted after that.

    A save that is asynchronous returns once the tensors are copied, and gives a future. When it is
    done, and the small file names the new folder, the others can go.
    """
    workers = run.attempts[0].trained
    threads = [w for w in workers if any(f["together"] and f["thread"] for f in w.all("saved"))]
    found = threads or [worker for worker in workers if worker.first("meanwhile")]
    told = f"{len(found)} of {len(workers)} processes train while their shards are written"
    mine, right = (
        [fact for fact in each.all("removed") if fact["path"].endswith("/.metadata")]
        for each in (run, run.reference)
    )
    if workers and len(found) == len(workers) and right and not mine:
        return False, f"{told}, and no folder is ever deleted"
    return (len(found) == len(workers), told) if workers else None
