"""N times the rate trains, with SGD, as the sum of the gradients does, and AdamW hides a sum."""

import pytest
import torch

from tests.beyond.checkpoints import distance, last_save
from tests.beyond.variants import train_variant

SHORT = (5, 5, "--batch_size", 16)
# With this hook, DDP adds the gradients up and divides nothing.
DDP = "self.model = DDP(model.to(self.device))\n"
SUM = f"""{DDP}
        def add(_, bucket):
            work = dist.all_reduce(bucket.buffer(), async_op=True)
            return work.get_future().then(lambda future: future.value()[0])

        self.model.register_comm_hook(None, add)
"""
SGD = "SGD(model.parameters(), lr=1e-3, momentum=0.9)"


@pytest.mark.parametrize("nproc", [2, pytest.param(4, marks=pytest.mark.soak)])
def test_mean_at_n_times_the_rate_is_the_sum_bit_for_bit(nproc, trained, tmp_path):
    scaled = torch.load(last_save(trained("scale_lr", *SHORT, nproc=nproc)))
    changes = [(DDP, SUM)]
    summed = torch.load(train_variant("multinode", changes, *SHORT, folder=tmp_path, nproc=nproc))
    rates = [one["optimizer"]["param_groups"][0]["lr"] for one in (scaled, summed)]
    assert rates == [nproc * 1e-3, 1e-3]
    for name in ("weight", "bias"):
        assert torch.equal(scaled["model"][name], summed["model"][name])
    for number, momentum in scaled["optimizer"]["state"].items():
        other = summed["optimizer"]["state"][number]["momentum_buffer"]
        assert torch.equal(nproc * momentum["momentum_buffer"], other)


def test_one_process_trains_as_its_parent(trained):
    one, parent = (trained(name, *SHORT, nproc=1) for name in ("scale_lr", "multinode"))
    assert distance(last_save(one), last_save(parent)) == 0


def test_adamw_hides_a_sum_and_only_eps_tells(trained, tmp_path):
    def adamw(eps, *changes):
        new = f"AdamW(model.parameters(), lr=1e-3, eps={eps})"
        name, changes = f"adamw-{eps}-{len(changes)}", [(SGD, new), *changes]
        return train_variant("multinode", changes, *SHORT, folder=tmp_path, name=name)

    # With SGD: the second one equals the sum.
    mean, summed = (last_save(trained(name, *SHORT)) for name in ("multinode", "scale_lr"))
    assert distance(mean, summed) > 0.01
    assert 0 < distance(adamw("1e-8"), adamw("1e-8", (DDP, SUM))) < 1e-6
    assert distance(adamw("0"), adamw("0", (DDP, SUM))) == 0
