"""Weights averaged every N steps, as by torch's own averager."""

from tests.lessons import distance, train

OWN = """
        if self.steps % SYNC_EVERY == 0:
            self._average(self.model.parameters())
"""
TORCHS = "\n        self.averager.average_parameters(self.model.parameters())\n"
COUNTED = "        self.steps = self.epochs_run * len(train_data)\n"
# It counts steps from 0 and averages before it adds one, hence the 9.
AVERAGER = f"""{COUNTED}
        from torch.distributed.algorithms.model_averaging import averagers

        self.averager = averagers.PeriodicModelAverager(period=10, warmup_steps=9)
"""


def test_torchs_own_averager_does_the_same(tmp_path):
    one = train("local_sgd", tmp_path, 3, 2, changes=[(OWN, TORCHS), (COUNTED, AVERAGER)])
    assert distance(one[0], train("local_sgd", tmp_path, 3, 2)[0]) < 1e-7
