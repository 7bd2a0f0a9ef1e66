"""With ZeRO, each rank holds a part of the optimizer's state, and training stays the same."""

import re
import shutil

from tests import nodes
from tests.beyond.checkpoints import last_save
from tests.faults import same
from tests.processes import ROOT, run
from tools import processes

SHORT = (5, 5, "--batch_size", 16)


def test_weights_and_consolidated_state_are_those_of_plain_sgd_bit_for_bit(trained):
    assert same(last_save(trained("zero")), last_save(trained("multinode")))


def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(trained, tmp_path):
    assert run("zero", 5, 5, cwd=tmp_path).status == 0
    resumed = run("zero", 10, 5, cwd=tmp_path)
    assert "Resuming after epoch 5" in resumed.lines
    assert same(tmp_path / "zero.pt", trained("zero").saves[0])  # after epoch 10


def test_it_resumes_from_a_checkpoint_of_plain_sgd_bit_for_bit(trained, tmp_path):
    after_10, after_20 = trained("multinode").saves[:2]
    shutil.copy(after_10, tmp_path / "zero.pt")
    assert "Resuming after epoch 10" in run("zero", 20, 10, cwd=tmp_path).lines
    assert same(tmp_path / "zero.pt", after_20)


def test_every_node_saves_the_whole_state(trained, tmp_path):
    folders = [tmp_path / "node0", tmp_path / "node1"]
    found = nodes.start(folders, *SHORT, lesson="zero", ranks=(0, 1), nproc=2)
    assert nodes.finish(found) == [0, 0]
    for folder in folders:
        assert same(folder / "zero.pt", last_save(trained("multinode", *SHORT, nproc=4)))


def test_each_of_two_ranks_holds_half_of_the_state_of_a_transformer(tmp_path):
    lab = str(ROOT / "docs" / "labs" / "optimizer_state.py")
    words = ["torchrun", "--standalone", "--nproc_per_node=2", lab]
    env = processes.environment(TMPDIR=str(tmp_path), OMP_NUM_THREADS="1")
    with processes.Process(words, tmp_path, env) as process:
        assert process.wait() == 0
    whole, first, second = re.search(
        r"([\d,]+) numbers of .* per rank: ([\d,]+), ([\d,]+)$", " ".join(process.lines)
    ).groups()
    whole, first, second = (int(number.replace(",", "")) for number in (whole, first, second))
    assert first + second == whole
    assert abs(first - second) < whole / 100
