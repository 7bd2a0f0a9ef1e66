"""Checkpoints: who writes them, how, and what is in them."""

import re
from collections import defaultdict
from itertools import pairwise

from ..recorded_run import matched
from ..rule import rule
from .replicas import is_sharded
from .wording import lines_with, times

LOADS = re.compile(r"\b(torch|dcp|checkpoint|fabric|pickle)\.load\(|\bload_(checkpoint|state)\("
                   r"|\b(load_file|safe_open)\(|resume\w*=")  # fmt: skip
TOTALS = 1024  # bytes that an evaluation reduces
ZIP = b"PK"  # torch.save writes a zip archive


def saves(run, state=False):
    """Checkpoints as (worker, fact, final path). Files without weights of the run do not count,
    nor do those with the state of an optimizer alone, but for `state`.

    What is saved to memory is in the file that is opened next, as with Lightning and Fabric.
    """
    found = []
    for worker in run.ranks or run.attempts[0].workers:  # without an optimizer there are no ranks
        for fact, following in pairwise([*worker.facts, {"kind": "end"}]):
            if fact["kind"] != "saved":
                continue
            states = [part for part in fact["parts"] if state and _has(part, "state")]
            if not states and not _has(fact, "weights"):
                continue
            if not fact["path"] and following["kind"] in ("opened", "elsewhere"):
                written = {"path": following["path"], "existed": following.get("existed", False)}
                there = fact | written  # perhaps renamed later
                fact = there if run.begins(final(run, there), ZIP) else fact
            if fact["path"]:
                found.append((worker, fact, final(run, fact)))
    return found


def final(run, fact):
    """The path that a written file has in the end: renaming changes it."""
    path = fact["path"]
    for rename in run.all("renamed"):
        if rename["t"] > fact["t"] and rename["source"] == path:
            path = rename["path"]
    return path


def called(fact):
    """Whose call of a helper it was: there it is mostly to be changed."""
    return f"; called from {fact['caller']}" if fact["caller"] else ""


@rule("warning")
def in_place(run):
    """A checkpoint is overwritten in place.

    If the process dies while it writes, half a file is left and the old one is gone. Write to
    another name, and `os.replace` it when it is whole.
    """
    renamed = {fact["source"] for fact in run.all("renamed")}
    over, seen = defaultdict(list), {}  # a file of an earlier run may have had the name before
    for worker, fact, path in saves(run, state=True):
        step = seen.get((worker, path))
        again = fact["existed"] and step is not None and (step != fact["step"] or not step)
        seen[worker, path] = fact["step"]
        if again and fact["path"] not in renamed and not fact["together"]:
            over[path].append(fact)
    if over:
        path, (fact, *more) = max(over.items(), key=lambda one: len(one[1]))
        yield f"{path}: overwritten {times(1 + len(more))}{called(fact)}", fact["where"]


@rule("warning")
def optimizer_order(run):
    """The ranks' optimizers have the same parameters in another order.

    `optimizer.state_dict()` numbers them, so after a restart the state of one is loaded into
    another. A set may have another order in each process: sort the names.
    """
    saved = [part for worker in run.ranks for fact in worker.all("saved") for part in fact["parts"]]
    if is_sharded(run) or not any(_has(part, "state") for part in saved):
        return
    for other in run.trained[1:]:
        one = run.trained[0]
        for fact, its in matched([one, other], "named", "opt").values():
            names, there = ([name for name, *_ in f["parameters"]] for f in (fact, its))
            if None not in names and names != there and sorted(names) == sorted(there, key=str):
                n = next(n for n, name in enumerate(names) if name != there[n])
                lines = lines_with(run, r"\bset\(") or [one.first("first")["where"]]
                yield (
                    f"number {n + 1} is {names[n]!r} on {one.name}, {there[n]!r} on {other.name}"
                ), lines[0]
                return


@rule("warning")
def state_missing(run):
    """The checkpoint lacks state that the training needs.

    A resumed run begins without it, so its weights differ from those of a run that was not
    interrupted. Save the optimizer's state_dict, and that of a GradScaler, beside the weights.
    """
    if not _resumes(run):
        return
    states = [fact for worker in run.ranks for fact in worker.all("saved")]
    whole = {part["opt"] for fact in states for part in fact["parts"] if _has(part, "state")}
    due, places = {}, []
    for worker, fact, path in saves(run):
        parts = [part for part in fact["parts"] if _has(part, "weights")]
        parts = [part for part in parts if _continues(worker, fact, str(part["opt"]))]
        due |= {part["opt"]: part["kept"] for part in parts}
        places += [(fact, path)] if parts else []
    saved, every = sum(due[opt] for opt in due if opt in whole), sum(due.values())
    if saved < every:
        fact, path = places[-1]
        yield (
            f"{path} has {saved} of {every} tensors of optimizer state{called(fact)}"
        ), fact["where"]
    keys = {leaf["path"].rpartition("/")[2] for fact in states for leaf in fact["content"]}
    scales = any(worker.counts.get("scaler") for worker in run.trained)
    if places and scales and "_growth_tracker" not in keys:
        with_state = [one for one in places if any(_has(p, "state") for p in one[0]["parts"])]
        fact, path = (with_state or places)[-1]
        yield f"{path} has no state of the GradScaler{called(fact)}", fact["where"]


def _resumes(run):
    """Whether the script would read a checkpoint to continue: not other weights to begin with, nor
    its own to evaluate them."""
    wrote = {path for _, _, path in saves(run)}
    read = [f for f in run.all("loaded") if f["step"] or f["path"] not in wrote]
    lines = {fact["where"] for fact in read}
    return any(
        LOADS.search(line) and f"{path}:{number}" not in lines
        for path, text in run.sources.items()
        for number, line in enumerate(text.splitlines(), 1)
    )


def _has(part, what):
    return (part[what] or 0) >= 0.5


def _continues(worker, fact, opt):
    """Whether the optimizer made more steps after a save. A new one would begin without state."""
    last = worker.first("last")
    if not last:
        return fact["step"] < worker.number_of_steps
    return last["made"][opt] > fact["made"][opt]


@rule("note")
def wrapped_names(run):
    """The saved weights have the names of a wrapper.

    A model without DDP or torch.compile cannot load them. Save the state_dict of the module inside.
    """
    for _, fact, path in saves(run):
        for leaf in fact["content"]:
            for prefix in ("module.", "_orig_mod."):
                key = leaf["key"] or ""
                if leaf["print"] and key.startswith(prefix) and key not in fact["names"]:
                    yield f"{path} has {key!r}", fact["where"]


@rule("error")
def keys_unmatched(run):
    """A checkpoint was loaded, but many of its keys have no place in the model.

    With `strict=False` PyTorch accepts this, and the training begins with weights that are not
    those of the file. Remove what wrappers add to the keys, or add it; look at what
    `load_state_dict` returns.
    """
    for worker in run.ranks or run.attempts[0].workers:
        main = max((fact["numbers"] for fact in worker.all("first")), default=0)
        models = defaultdict(list)
        for fact in worker.all("restored"):
            models[fact["model"]].append(fact)
        for facts in models.values():  # a file may be in several parts
            matched, given = (sum(fact[key] for fact in facts) for key in ("matched", "given"))
            one = min(facts, key=lambda fact: fact["matched"])
            wanted = max(fact["wanted"] for fact in facts)
            little = matched <= 0.2 * given and matched < 0.2 * wanted
            renamed = 2 * one["renamed"] >= one["wanted"] - one["matched"] > 0
            renamed &= wanted - matched >= one["renamed"]  # a second try may find them
            empty = not given and (not one["numbers"] or 2 * one["numbers"] < main)  # a part's
            if not empty and (little or renamed):
                pair = [fact[0] for fact in (one["unexpected"], one["missing"]) if fact]
                names = " and ".join(map(repr, pair))
                yield (
                    f"{matched:,} of its {given:,} keys have a place among the {wanted:,} of "
                    f"{one['type']}; without one: {names}"
                ), one["where"]


@rule("error")
def kept_without_copy(run):
    """Weights that were kept are loaded back, which changes nothing.

    `state_dict()` does not copy: its tensors are the weights, which training changes further. Keep
    `copy.deepcopy(model.state_dict())`.
    """
    for worker in run.trained:
        for fact in worker.all("own"):
            earlier = [one for one in worker.facts if one["t"] < fact["t"]]
            steps = [one["t"] for one in earlier if one["kind"] in ("backward", "step")]
            since = [one for one in earlier if one["t"] > max(steps, default=0)]
            # DCP, or an average over the ranks, may have written into these tensors.
            if not any(one["kind"] == "loaded" or one.get("bytes", 0) > TOTALS for one in since):
                told = f"kept after step {fact['taken']}, loaded after step {fact['step']}"
                yield told, fact["where"]
                return


@rule("warning")
def loads_to_one_gpu(run):
    """Several ranks load a checkpoint onto the GPU of one.

    `torch.load` brings tensors back to the GPU from which they were saved. There they take memory
    once per rank, with a CUDA context each. Pass `map_location="cpu"`, or the rank's own device.
    """
    files = defaultdict(set)
    for fact in run.all("saved"):
        for path in {fact["path"], final(run, fact)} - {None}:
            files[path] |= {*fact["gpus"]}
    for worker in run.ranks:
        chosen, local = worker.first("chosen"), worker.process.get("local_rank")
        own = chosen["index"] if chosen else local
        for fact in worker.all("loaded"):
            gpus = fact.get("gpus")
            if gpus is not None and own is not None:
                onto = {*gpus} or files[fact["behind"] or fact["path"]]
                if onto and own not in onto:
                    yield (
                        f"{worker.name}, which uses GPU {own}, loads {fact['path']} onto GPU "
                        f"{min(onto)}"
                    ), fact["where"]


@rule("warning")
def last_steps_lost(run):
    """The last steps are in no checkpoint.

    The training ends between two checkpoints. Save once more at the end.
    """
    if run.status != 0 or not run.trained:
        return
    by_step = {fact["step"]: fact for _, fact, _ in saves(run)}
    steps, end = sorted(by_step), max(worker.number_of_steps for worker in run.trained)
    gaps = {later - earlier for earlier, later in pairwise(steps)}
    lost = end - steps[-1] if steps else 0
    regular = len(gaps) == 1 and (len(steps) > 2 or steps[0] in gaps)  # else the two best results
    if regular and lost > 1 and 0.1 * min(gaps) < lost < min(gaps):
        yield (
            f"{end:,} steps ran, the last checkpoint has {steps[-1]:,}: {lost:,} are lost"
            f"{called(by_step[steps[-1]])}"
        ), by_step[steps[-1]]["where"]


def unexamined(run):
    """What these rules could not look at, and why."""
    if run.trained and not saves(run):
        some = any(fact for worker in run.ranks for fact in worker.all("saved"))
        why = "none of the saved files has the optimizer's weights" if some else "none was saved"
        yield f"checkpoints: {why}"
