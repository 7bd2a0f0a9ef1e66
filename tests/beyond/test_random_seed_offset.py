"""Ranks that draw with a seed per rank see 1 - (1 - 1/N)^N of the data in an epoch."""

import pytest

from tests.beyond.checkpoints import distance, last_save
from tests.beyond.variants import train_variant
from tests.faults import same
from tests.processes import run

SHORT = (3, 3, "--batch_size", 16)
EPOCHS, SAMPLES = 3, 2048
# Each rank writes the indices that it reads to a file.
NOTE = (
    "    dataset = utils.MyTrainDataset()\n",
    """
    class Noted(utils.MyTrainDataset):
        file = open(f"rank{dist.get_rank()}", "w", buffering=1)

        def __getitem__(self, index):
            print(index, file=self.file)
            return super().__getitem__(index)

    dataset = Noted()
""",
)


def drawn(lesson, folder, nproc):
    """A list per epoch, of what each rank read: a list of indices."""
    train_variant(lesson, [NOTE], *SHORT, folder=folder, nproc=nproc)
    read = [(folder / f"rank{rank}").read_text().split() for rank in range(nproc)]
    share = SAMPLES // nproc
    assert [len(one) for one in read] == [EPOCHS * share] * nproc
    return [[one[at : at + share] for one in read] for at in range(0, EPOCHS * share, share)]


def seen(ranks):
    return len(set().union(*ranks)) / SAMPLES


@pytest.mark.parametrize(
    "nproc, expected",
    [(2, 0.75), (4, 0.684), pytest.param(8, 0.656, marks=pytest.mark.soak)],
)
def test_an_epoch_sees_the_share_of_independent_draws(nproc, expected, tmp_path):
    epochs = drawn("random_seed_offset", tmp_path, nproc)
    assert expected == pytest.approx(1 - (1 - 1 / nproc) ** nproc, abs=5e-4)
    assert [seen(ranks) for ranks in epochs] == pytest.approx([expected] * EPOCHS, abs=0.03)
    draws = [one for ranks in epochs for one in ranks]
    assert all(len(set(one)) == SAMPLES // nproc for one in draws)  # no rank repeats a sample
    assert len(set(map(tuple, draws))) == EPOCHS * nproc  # no rank or epoch repeats an order


def test_shards_see_every_sample_once(tmp_path):
    assert [seen(ranks) for ranks in drawn("multinode", tmp_path, 2)] == [1.0] * EPOCHS


def test_one_process_trains_as_single_gpu(trained):
    one, single = (trained(name, *SHORT, nproc=1) for name in ("random_seed_offset", "single_gpu"))
    assert distance(last_save(one), last_save(single)) == 0


def test_a_resumed_training_draws_the_same_samples(trained, tmp_path):
    args = ("random_seed_offset", 1, *SHORT[1:])
    assert run(*args, cwd=tmp_path).status == 0
    resumed = run("random_seed_offset", *SHORT, cwd=tmp_path)
    assert (resumed.status, "Resuming after epoch 1" in resumed.lines) == (0, True)
    straight = last_save(trained("random_seed_offset", *SHORT))
    assert same(tmp_path / "random_seed_offset.pt", straight)
