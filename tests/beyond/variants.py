"""Train by a script with other lines."""

from tests.processes import LESSONS, LIMIT, ROOT
from tools.processes import Process, environment


def train_variant(lesson, changes, *args, folder, name="variant", nproc=2):
    """The checkpoint of a training by a lesson's script, with the pairs of `changes` replaced."""
    text = (ROOT / LESSONS[lesson].file).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{lesson} has {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    (folder / f"{name}.py").write_text(text)
    words = ["torchrun", "--standalone", f"--nproc_per_node={nproc}", f"{name}.py", *map(str, args)]
    env = environment(OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT))
    with Process(words, cwd=folder, env=env) as process:
        assert process.wait(LIMIT) == 0, process.tail
    return folder / f"{name}.pt"
