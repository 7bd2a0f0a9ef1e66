"""Files of several ranks: who writes them, and who reads what another one writes."""

from collections import defaultdict
from operator import itemgetter

from ..rule import rule
from .calls import calls
from .checkpoint_files import called, final, saves
from .wording import lines_with, ranks


@rule("error")
def several_writers(run):
    """Several ranks write the same file.

    They write at the same time, so the file may be damaged. Let rank 0 save, and the others
    continue.
    """
    writers = defaultdict(dict)
    for worker, fact, path in saves(run):
        for name in (path, fact["path"]):  # if one rank's renaming fails, only the second is equal
            if not fact["together"]:
                writers[worker.node, name].setdefault(worker.rank, (worker, fact))
    for (_, path), those in writers.items():
        if len(those) > 1:
            workers = [worker for _, (worker, _) in sorted(those.items())]
            fact = those[max(those)][1]  # not rank 0's call, which may stay
            yield f"{path}: written by {ranks(workers)}{called(fact)}", fact["where"]


@rule("note")
def written_by_all(run):
    """Several ranks write to one file, which is no checkpoint.

    Its lines are there once per rank, or half of what one rank wrote is lost. Let rank 0 write it,
    or give each rank a name.
    """
    writers, known = defaultdict(dict), {path for _, fact, path in saves(run)}
    known |= {fact[name] for fact in run.all("renamed", "removed") for name in ("source", "path")
              if name in fact}  # fmt: skip
    for worker in run.ranks:
        for fact in worker.all("opened", "saved"):
            path, own = fact["path"], fact["where"] and not fact.get("together")
            if own and path and path not in known and not path.endswith(".lock"):
                writers[worker.node, fact["path"]].setdefault(worker, fact["where"])
    for (_, path), those in writers.items():
        if len(those) > 1:
            yield f"{path}: by {ranks([*those])}", next(iter(those.values()))


WAITS = r"\bstore\.(get|wait)\(|\bwhile\b.*exists\(|\bexists\(.*\bsleep\(|[Ll]ock\("


@rule("error")
def read_too_early(run):
    """A rank loads a file that another one saves, and nothing makes it wait for that.

    It may get half of the file, or the one before. Call `dist.barrier()` between them, on all
    ranks.
    """
    for reader in run.ranks if not lines_with(run, WAITS) else ():
        for read in filter(itemgetter("path"), reader.all("loaded")):
            for writer in [one for one in run.ranks if one.node == reader.node]:
                saved = [fact for fact in writer.all("saved") if _is_of(run, fact, read)]
                last = max(saved, key=lambda fact: fact["t"], default=None)
                if last and writer is not reader and _made(reader, read) <= _made(writer, last):
                    yield (
                        f"{reader.name} loads {read['path']}, which {writer.name} saves, and they "
                        "make no collective call between"
                    ), read["where"]
                    return


def _is_of(run, saved, read):
    """Whether it is of the file that is read, and the two ranks had made as many steps."""
    return read["path"] in (saved["path"], final(run, saved)) and saved["step"] == read["step"]


def _made(worker, fact):
    return sum(call["t"] < fact["t"] for call in calls(worker))
