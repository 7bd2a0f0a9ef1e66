"""Right answers that a judge of texts, or one with less patience, would call wrong."""

import pytest

from tests.workshop.scripts import assert_right, changed, extra

EPOCH = "            self._run_epoch(epoch)\n"
DDP = "DDP(model.to(self.device))"
PORT = "str(utils.free_port())"
GROUP = "init_process_group(device_id=device_id)"
LOADER = "batch_size, sampler=sampler)"
SET_EPOCH = "        self.train_data.sampler.set_epoch(epoch)  # or the order never changes\n"
BATCHES = "        for source, targets in self.train_data:\n"
BACKWARD = "        loss.backward()\n"
WRITER = "        if dist.get_rank() != 0:\n            return\n        checkpoint"
SAVE = "        utils.save_checkpoint(checkpoint, self.path)\n"
BARRIER = "    dist.barrier()  # wait for the last save\n"
LOAD = (
    "        checkpoint = utils.read_checkpoint(self.path)\n"
    '        self.epochs_run = checkpoint["epochs_run"]\n'
)
RENAMED = (
    "        torch.save(checkpoint, self.path + '.part')\n"
    "        os.replace(self.path + '.part', self.path)\n"
)


def counted(write, start, read):
    """Changes to count epochs in another way."""
    load = (
        "        exists = os.path.exists(self.path)\n"
        f"        checkpoint = torch.load(self.path) if exists else {start}\n"
        f"        self.epochs_run = {read}\n"
    )
    return [('"epochs_run": epoch + 1', write), (SAVE, RENAMED), (LOAD, load)]


RIGHT = {
    "gradients averaged by hand": ("multigpu", [
        (DDP, "model.to(self.device)"),
        ("self.model.module.state_dict", "self.model.state_dict"),
        (BACKWARD,
         "        (loss / dist.get_world_size()).backward()\n"
         "        for weight in self.model.parameters():\n"
         "            dist.all_reduce(weight.grad)\n"),
    ]),
    "saved to memory first": ("multigpu_torchrun", [
        (SAVE,
         "        import io\n"
         "        buffer = io.BytesIO()\n"
         "        torch.save(checkpoint, buffer)\n"
         "        with open(self.path + '.part', 'wb') as file:\n"
         "            file.write(buffer.getvalue())\n"
         "        os.replace(self.path + '.part', self.path)\n"),
    ]),
    "counted under another name": ("multigpu_torchrun", counted(
        '"done": epoch + 1, "world": dist.get_world_size()', '{"done": 0}', 'checkpoint["done"]'
    )),
    "the number of the last epoch": ("multigpu_torchrun", counted(
        '"epoch": epoch', '{"epoch": -1}', 'checkpoint["epoch"] + 1'
    )),
    "counted in steps": ("multigpu_torchrun", counted(
        '"steps": (epoch + 1) * len(self.train_data)', '{"steps": 0}',
        'checkpoint["steps"] // len(self.train_data)',
    )),
    "saved by all ranks together": ("multigpu", [
        (WRITER, "        checkpoint"),
        (SAVE,
         "        import torch.distributed.checkpoint as dcp\n"
         "        dcp.save(checkpoint, checkpoint_id=self.path)\n"),
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
    "a file per save, the last one kept": ("multigpu", [
        (SAVE,
         "        path = f'{self.path}.{epoch}'\n"
         "        utils.save_checkpoint(checkpoint, path)\n"
         "        if hasattr(self, 'last'):\n"
         "            os.remove(self.last)\n"
         "        self.last = path\n"),
    ]),
    "written by a thread": ("multigpu", [
        (SAVE,
         "        import threading\n"
         "        writer = threading.Thread(\n"
         "            target=utils.save_checkpoint, args=(checkpoint, self.path))\n"
         "        writer.start()\n"
         "        writer.join()\n"),
    ]),
    "another rank saves": ("multigpu", [(WRITER, WRITER.replace("!= 0", "!= 1"))]),
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
    "weights in a list": ("multigpu_torchrun", [
        ("self.model.module.state_dict()",
         "[weight.detach() for weight in self.model.module.parameters()]"),
        (SAVE, RENAMED),
        ("utils.read_checkpoint(self.path)",
         'torch.load(self.path) if os.path.exists(self.path) else {"epochs_run": 0}'),
        ('            self.model.module.load_state_dict(checkpoint["model"])\n',
         "            with torch.no_grad():\n"
         '                for weight, saved in zip(self.model.parameters(), checkpoint["model"]):\n'
         "                    weight.copy_(saved)\n"),
    ]),
    "torch's own functions for state": ("multigpu_torchrun", [
        ("import utils\n",
         "from torch.distributed.checkpoint import state_dict as states\n\nimport utils\n"),
        ("self.model.module.state_dict()", "states.get_model_state_dict(self.model)"),
        ("self.optimizer.state_dict()",
         "states.get_optimizer_state_dict(self.model, self.optimizer)"),
        ('self.model.module.load_state_dict(checkpoint["model"])',
         'states.set_model_state_dict(self.model, checkpoint["model"])'),
        ('self.optimizer.load_state_dict(checkpoint["optimizer"])',
         "states.set_optimizer_state_dict(\n"
         '                self.model, self.optimizer, checkpoint["optimizer"])'),
    ]),
    "a thread that writes while training continues": ("multigpu", [
        (SAVE,
         "        import copy, threading\n"
         "        self.wait()\n"
         "        self.writer = threading.Thread(\n"
         "            target=self.write, args=(copy.deepcopy(checkpoint),))\n"
         "        self.writer.start()\n\n"
         "    def write(self, checkpoint):\n"
         "        time.sleep(0.2)  # a slow disk\n"
         "        utils.save_checkpoint(checkpoint, self.path)\n\n"
         "    def wait(self):\n"
         "        if hasattr(self, 'writer'):\n"
         "            self.writer.join()\n"),
        ("    trainer.train(args.total_epochs)\n",
         "    trainer.train(args.total_epochs)\n    trainer.wait()\n"),
    ]),
    "a device mesh": ("multigpu", [
        ("dist." + GROUP,
         'dist.init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))'),
    ]),
    "a number in a tensor": ("multigpu_torchrun", counted(
        '"epochs_run": torch.tensor(epoch + 1)', '{"epochs_run": 0}',
        'int(checkpoint["epochs_run"])',
    )),
    "written elsewhere and copied beside the checkpoint": ("multigpu", [
        (SAVE,
         "        import shutil, tempfile\n"
         "        with tempfile.TemporaryDirectory() as place:\n"
         "            torch.save(checkpoint, place + '/new')\n"
         "            shutil.copyfile(place + '/new', self.path + '.part')\n"
         "        os.replace(self.path + '.part', self.path)\n"),
    ]),
    "the number of a node's processes": ("multinode", [
        ("dist.get_node_local_rank() != 0",
         'dist.get_rank() % int(os.environ["LOCAL_WORLD_SIZE"]) != 0'),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_it_passes(name):
    lesson, changes = RIGHT[name]
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
