"""Are random numbers drawn twice: by ranks, by workers, in epochs?"""

from ..rule import rule
from .drawn_samples import trained_on
from .sample_shares import _is_data_parallel
from .wording import lines_with

GLOBAL = ("torch", "numpy", "random")  # states of a process
RANKS = "all ranks"


@rule("warning")
def draws_alike(run):
    """A dataset draws the same random numbers several times.

    Samples get the same augmentation or noise, so there is less variety than you planned. Unless
    workers persist, each gets a new copy of the dataset in every epoch, generator included. Make
    the generator in the worker, when it is first used, from `torch.initial_seed() % 2**32`, which
    differs per worker and epoch, and per rank if each rank has its own seed.
    """
    for name, how, loading in _alike(run):
        if name not in GLOBAL or how != [RANKS]:
            of = f"of {name}" if name in GLOBAL else f"`{name}` of {loading['dataset']}"
            told = f"the generator {of} gave the same numbers to {' and to '.join(how)}"
            yield told, _made(run, name) or loading["made"]


@rule("note")
def ranks_draw_alike(run):
    """Workers of all ranks draw the same random numbers for their samples.

    The ranks had equal random states when the loader started its workers. Seed with the rank, after
    the model is made: `torch.manual_seed(seed + rank)`. But if all ranks shuffle in one order and
    take their parts of it, seed that shuffle alike.
    """
    for name, how, loading in _alike(run):
        if name in GLOBAL and how == [RANKS]:
            yield f"the generator of {name} gave the same numbers to {RANKS}", loading["made"]


@rule("warning")
def random_numbers_again(run):
    """Training draws the same random numbers again.

    Something seeds anew while it runs, such as an evaluation that should be repeatable. From then
    on noise and dropout are those of earlier steps, and perhaps equal on all ranks. Give the
    evaluation a separate generator, `torch.Generator().manual_seed(0)`, or use
    `torch.random.fork_rng()`.
    """
    for fact in run.all("rewound")[:1]:
        yield f"step {fact['n']:,} drew what step {fact['earlier']:,} had drawn", fact["where"]


def _alike(run):
    """Of each generator that a loader of the training moves: its name, and who drew alike."""
    parallel = len(run.replicas) > 1 and _is_data_parallel(run)
    for loader, (loading, *_) in trained_on(run):
        if loading["iterable"]:
            continue  # it may shuffle, alike on purpose
        states = {}  # of the generator after each fetch, by generator, rank, epoch and worker
        for rank, worker in enumerate(run.trained):
            for fact in worker.all("draws"):
                if fact["loader"] == loader:
                    for name, state in fact["states"].items():
                        key = rank, fact["nth"], fact["worker"]
                        states.setdefault(name, {}).setdefault(key, {})[fact["n"]] = state
        for name, own in states.items():
            if how := _who(own, parallel):
                yield name, how, loading


def _who(states, parallel):
    """`states`: by rank, epoch and worker."""
    keys = sorted(states)
    pairs = [(a, b) for a in keys for b in keys if a < b and _equal(states[a], states[b])]
    found = {
        "all workers of a rank": any(a[:2] == b[:2] for a, b in pairs),
        "every epoch": any(a[::2] == b[::2] for a, b in pairs),
        RANKS: parallel and any(a[1:] == b[1:] for a, b in pairs),
    }
    return [who for who, alike in found.items() if alike]


def _equal(one, other):
    """After the same fetches, at least two."""
    both = one.keys() & other.keys()
    return len(both) > 1 and all(one[n] == other[n] for n in both)


def _made(run, name):
    """The line that makes a dataset's own generator."""
    own = rf"\.{name.rpartition('.')[2]}\s*(:.*)?= .*\("
    return next(iter([] if name in GLOBAL else lines_with(run, own)), None)
