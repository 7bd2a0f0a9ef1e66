"""Right answers with other names, in another order, or by other means."""

from tests.workshop.scripts import assert_right, changed

FROM_SCRATCH = '''
import os
import time

import torch
import torch.distributed as dist
from torch.multiprocessing import get_context

import utils

EACH = 32


def mean_over_ranks(net):
    """What DDP does, by hand."""
    for weight in net.parameters():
        pieces = [torch.empty_like(weight) for _ in range(dist.get_world_size())]
        dist.all_gather(pieces, weight.grad)
        weight.grad.copy_(torch.stack(pieces).mean(0))


def my_part(epoch, count):
    deck = torch.randperm(count, generator=torch.Generator().manual_seed(100 + epoch))
    return deck.chunk(dist.get_world_size())[dist.get_rank()].split(EACH)


def learn(place, how_many, port, epochs, every, file):
    meeting = dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=meeting, rank=place, world_size=how_many)
    data = utils.MyTrainDataset()
    net = torch.nn.Linear(20, 1)  # unseeded, because rank 0 broadcasts its weights
    for weight in net.parameters():
        dist.broadcast(weight.data, src=0)
    rule = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(epochs):
        began, summed = time.perf_counter(), 0.0
        for chosen in my_part(epoch, len(data)):
            error = net(data.features[chosen]) - data.targets[chosen]
            rule.zero_grad()
            error.square().mean().backward()
            mean_over_ranks(net)
            rule.step()
            summed += error.detach().square().sum().item()
        parts = [None] * how_many
        dist.all_gather_object(parts, (summed, len(data) // how_many))
        if place == how_many - 1:
            utils.report(epoch, torch.tensor(parts).sum(0), began)
            if not (epoch + 1) % every or epoch == epochs - 1:
                state = {"net": net.state_dict(), "rule": rule.state_dict(), "n": epoch + 1}
                torch.save(state, file + ".part")
                os.replace(file + ".part", file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    wishes = utils.parse_args("    python multigpu.py")
    number = utils.num_processes()
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True)
    crew = [
        get_context("spawn").Process(target=learn, args=(
            place, number, meeting.port, wishes.total_epochs, wishes.save_every,
            wishes.checkpoint_path))
        for place in range(number)
    ]
    [one.start() for one in crew]
    [one.join() for one in crew]
    raise SystemExit(max(one.exitcode for one in crew))
'''


def test_a_script_of_ones_own_without_ddp_sampler_or_loader():
    assert_right("multigpu", FROM_SCRATCH)


def test_a_resume_of_ones_own_after_a_failure():
    """Only rank 0 reads; it broadcasts weights, state and number to the others."""
    assert_right("multigpu_torchrun", changed(
        "multigpu_torchrun",
        ("        checkpoint = utils.read_checkpoint(self.path)\n"
         "        self.epochs_run",
         "        found = [None]\n"
         "        if dist.get_rank() == 0 and os.path.exists(self.path):\n"
         "            found = [torch.load(self.path)]\n"
         "        dist.broadcast_object_list(found, src=0)\n"
         "        checkpoint = found[0] or {'epochs_run': 0}\n"
         "        self.epochs_run"),
    ))  # fmt: skip


def test_the_newest_checkpoint_found_by_sums_and_sent_tensor_by_tensor():
    assert_right("multinode", changed(
        "multinode",
        ("        progress = [None] * dist.get_world_size()\n"
         '        dist.all_gather_object(progress, checkpoint["epochs_run"])\n'
         "        newest = [checkpoint]  # broadcast whole: through GPU memory under NCCL\n"
         "        dist.broadcast_object_list(newest, src=progress.index(max(progress)))\n"
         "        checkpoint = newest[0]\n",
         "        progress = torch.zeros(dist.get_world_size(), dtype=torch.int64)\n"
         '        progress[dist.get_rank()] = checkpoint["epochs_run"]\n'
         "        dist.all_reduce(progress)\n"
         "        box = [checkpoint if dist.get_rank() == int(progress.argmax()) else None]\n"
         "        boxes = [None] * dist.get_world_size()\n"
         "        dist.all_gather_object(boxes, box)\n"
         "        checkpoint = next(box[0] for box in boxes if box[0])\n"),
    ))  # fmt: skip


def test_forked_processes():
    assert_right("multigpu", FROM_SCRATCH.replace('"spawn"', '"fork"'))


def test_a_loss_that_is_a_module_keywords_and_gather():
    assert_right("multigpu", changed(
        "multigpu",
        ("F.mse_loss(self.model(source), targets)",
         "torch.nn.MSELoss()(self.model(input=source), targets)"),
        ("        loss.backward()\n", "        torch.autograd.backward(loss)\n"),
        ("        dist.all_reduce(totals)  # every rank must call this, or the others hang\n",
         "        parts = [torch.empty_like(totals) for _ in range(dist.get_world_size())]\n"
         "        dist.gather(totals, parts if dist.get_rank() == 0 else None)\n"
         "        totals = sum(parts)\n"),
    ))  # fmt: skip


def test_gradients_accumulated_and_clipped():
    assert_right("multigpu", changed(
        "multigpu",
        ("        loss = F.mse_loss(self.model(source), targets)\n"
         "        loss.backward()\n",
         "        half, loss = len(source) // 2, 0\n"
         "        with self.model.no_sync():\n"
         "            first = F.mse_loss(self.model(source[:half]), targets[:half]) / 2\n"
         "            first.backward()\n"
         "        second = F.mse_loss(self.model(source[half:]), targets[half:]) / 2\n"
         "        second.backward()\n"
         "        loss = first + second\n"
         "        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)\n"),
    ))  # fmt: skip
