"""Right answers that a judge of texts, or one with less patience, would call wrong."""

import pytest

from tests.workshop.right_saves import SAVE, SAVES, WRITER
from tests.workshop.scripts import assert_right, changed, extra, together

EPOCH = "            self._run_epoch(epoch)\n"
DDP = "DDP(model.to(self.device))"
PORT = "str(utils.free_port())"
GROUP = "init_process_group(device_id=device_id)"
LOADER = "batch_size, sampler=sampler)"
SET_EPOCH = "        self.train_data.sampler.set_epoch(epoch)  # or the order never changes\n"
BATCHES = "        for source, targets in self.train_data:\n"
BACKWARD = "        loss.backward()\n"
BARRIER = "    dist.barrier()  # wait for the last save\n"


RIGHT = {
    "gradients averaged by hand": ("multigpu", [
        (DDP, "model.to(self.device)"),
        ("self.model.module.state_dict", "self.model.state_dict"),
        (BACKWARD,
         "        (loss / dist.get_world_size()).backward()\n"
         "        for weight in self.model.parameters():\n"
         "            dist.all_reduce(weight.grad)\n"),
    ]),
    "a persistent worker": ("multigpu", [
        (LOADER, "batch_size, sampler=sampler, num_workers=1,\n        persistent_workers=True)"),
    ]),
    "one iterator over an endless sampler": ("multigpu", [
        ("    sampler = DistributedSampler(dataset)\n",
         "    class Endless(DistributedSampler):\n"
         "        def __iter__(self):\n"
         "            for epoch in range(10**9):\n"
         "                self.set_epoch(epoch)\n"
         "                yield from super().__iter__()\n\n"
         "    sampler = Endless(dataset)\n"),
        (SET_EPOCH, "        self.all = getattr(self, 'all', None) or iter(self.train_data)\n"),
        (BATCHES,
         "        for _ in range(len(self.train_data)):\n"
         "            source, targets = next(self.all)\n"),
    ]),
    "one generator over all epochs": ("multigpu", [
        (SET_EPOCH, "        self.stream = getattr(self, 'stream', None) or self._batches()\n"),
        (BATCHES,
         "        for _ in range(len(self.train_data)):\n"
         "            source, targets = next(self.stream)\n"),
        ("    def _save_checkpoint",
         "    def _batches(self):\n"
         "        for epoch in range(10**9):\n"
         "            self.train_data.sampler.set_epoch(epoch)\n"
         "            yield from self.train_data\n\n"
         "    def _save_checkpoint"),
    ]),
    "a rank that sleeps": ("multigpu", [
        (EPOCH,
         EPOCH + "            if dist.get_rank() == epoch == 1:\n                time.sleep(4)\n"),
    ]),
    "a port from a socket": ("multigpu", [
        ('    os.environ["MASTER_PORT"] = ',
         "    import socket\n"
         "    asked = socket.create_server(('', 0))\n"
         '    os.environ["MASTER_PORT"] = '),
        (PORT, "str(asked.getsockname()[1])\n    asked.close()"),
    ]),
    "a file in place of a port": ("multigpu", [
        (GROUP,
         "init_process_group(\n"
         '        "gloo", init_method=f"file://{os.getcwd()}/meet", rank=int(os.environ["RANK"]),\n'
         '        world_size=int(os.environ["WORLD_SIZE"]))'),
    ]),
    "another optimizer": ("multigpu", [
        ("SGD(model.parameters(), lr=1e-3, momentum=0.9)", "AdamW(model.parameters(), lr=1e-2)"),
    ]),
    "an all-reduce in place of the barrier": ("multigpu", [
        (BARRIER, "    dist.all_reduce(torch.zeros(1))\n"),
    ]),
    "a hook that averages": ("multigpu", [
        ("        self.train_data = train_data\n",
         "        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
         "        self.model.register_comm_hook(None, default_hooks.allreduce_hook)\n"
         "        self.train_data = train_data\n"),
    ]),
    "a static graph": ("multigpu", [
        (DDP, "DDP(model.to(self.device), static_graph=True, gradient_as_bucket_view=True)"),
    ]),
    "parameters that may be unused": ("multigpu", [
        (DDP, "DDP(model.to(self.device), find_unused_parameters=True)"),
    ]),
    "a validation after each epoch": ("multigpu", [
        (EPOCH,
         EPOCH + "            with torch.no_grad():\n"
         "                for source, targets in DataLoader(self.train_data.dataset, 512):\n"
         "                    F.mse_loss(self.model.module(source), targets)\n"),
    ]),
    "a group per kind of parameter": ("multigpu_torchrun", [
        ("SGD(model.parameters(), lr",
         "SGD([\n"
         '        {"params": [model.bias], "weight_decay": 0.0},\n'
         '        {"params": [model.weight], "weight_decay": 1e-4}], lr'),
    ]),
    "a larger model with buffers and dropout": ("multigpu", [
        ("model = torch.nn.Linear(20, 1)",
         "model = torch.nn.Sequential(\n"
         "        torch.nn.BatchNorm1d(20), torch.nn.Dropout(0.1), torch.nn.Linear(20, 64),\n"
         "        torch.nn.ReLU(), torch.nn.Linear(64, 1))"),
    ]),
    "a frozen parameter": ("multigpu", [
        ("model = torch.nn.Linear(20, 1)",
         "model = torch.nn.Linear(20, 1)\n    model.bias.requires_grad_(False)"),
    ]),
    "each number of the gradient clipped": ("multigpu", [
        (BACKWARD,
         BACKWARD + "        torch.nn.utils.clip_grad_value_(self.model.parameters(), 0.2)\n"),
    ]),
    "a device mesh": ("multigpu", [
        ("dist." + GROUP,
         'dist.init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))'),
    ]),
    "an optimizer that is sharded": ("multigpu_torchrun", [
        ("        self.optimizer = optimizer\n",
         "        from torch.distributed.optim import ZeroRedundancyOptimizer as Zero\n"
         "        self.optimizer = Zero(\n"
         "            self.model.parameters(), torch.optim.SGD, lr=1e-3, momentum=0.9)\n"),
        (WRITER, "        self.optimizer.consolidate_state_dict(to=0)\n" + WRITER),
    ]),
    "a model with an attribute called module": ("multigpu", [
        ("    model = torch.nn.Linear(20, 1)",
         "    class Net(torch.nn.Module):\n"
         "        def __init__(self):\n"
         "            super().__init__()\n"
         "            self.module = torch.nn.Linear(20, 1)\n\n"
         "        def forward(self, source):\n"
         "            return self.module(source)\n\n"
         "    model = Net()"),
    ]),
    "an L2 penalty on some of the weights": ("multigpu", [
        (BACKWARD, "        (loss + self.model.module.weight.square().sum() / 9).backward()\n"),
    ]),
    "a store in place of the barrier": ("multigpu", [
        (BARRIER,
         "    store = dist.distributed_c10d._get_default_store()\n"
         "    store.set(f'saved{rank}', 'yes')\n"
         "    store.wait([f'saved{one}' for one in range(world_size)])\n"),
    ]),
    "a sum for the rank that prints": ("multigpu", [
        ("dist.all_reduce(totals)", "dist.reduce(totals, 0)"),
    ]),
    "the number of a node's processes": ("multinode", [
        ("dist.get_node_local_rank() != 0",
         'dist.get_rank() % int(os.environ["LOCAL_WORLD_SIZE"]) != 0'),
    ]),
}  # fmt: skip


ALL = SAVES | RIGHT
ALONE = {"an optimizer that is sharded", "an L2 penalty on some of the weights"}
COMBINED = together(ALL, ALONE)


@pytest.mark.parametrize("names", COMBINED, ids=str)
def test_several_at_once_pass(names):
    lesson, changes = COMBINED[names]
    assert_right(lesson, changed(lesson, *changes))


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_each_passes_alone(name):
    lesson, changes = ALL[name]
    assert_right(lesson, changed(lesson, *changes))


def test_own_writing_that_survives_a_power_cut():
    text = changed("multigpu", (SAVE,
        "        with open(self.path + '.part', 'wb') as file:\n"
        "            torch.save(checkpoint, file)\n"
        "            file.flush()\n"
        "            os.fsync(file.fileno())\n"
        "        os.replace(self.path + '.part', self.path)\n",
    ))  # fmt: skip
    assert_right("multigpu", text, extra("survives-a-power-cut"))
