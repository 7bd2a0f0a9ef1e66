"""Right ways to write a checkpoint that a judge of texts would call wrong."""

WRITER = "        if dist.get_rank() != 0:\n            return\n        checkpoint"
SAVE = "        utils.save_checkpoint(checkpoint, self.path)\n"
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


SAVES = {
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
    "weights pickled as arrays": ("multigpu_torchrun", [
        ("self.model.module.state_dict()",
         "{name: weight.numpy() for name, weight in self.model.module.state_dict().items()}"),
        (SAVE,
         "        import pickle\n"
         "        with open(self.path + '.part', 'wb') as file:\n"
         "            pickle.dump(checkpoint, file)\n"
         "        os.replace(self.path + '.part', self.path)\n"),
        (LOAD,
         "        import pickle\n"
         "        checkpoint = {'epochs_run': 0}\n"
         "        if os.path.exists(self.path):\n"
         "            with open(self.path, 'rb') as file:\n"
         "                checkpoint = pickle.load(file)\n"
         "            model = checkpoint['model'].items()\n"
         "            checkpoint['model'] = {name: torch.from_numpy(one) for name, one in model}\n"
         "        self.epochs_run = checkpoint['epochs_run']\n"),
    ]),
    "a link to another folder": ("multigpu", [
        (SAVE,
         "        if not os.path.lexists(self.path):\n"
         "            import tempfile\n"
         "            os.symlink(tempfile.mkdtemp() + '/real.pt', self.path)\n" + SAVE),
    ]),
    "a link that is replaced": ("multigpu", [
        (SAVE,
         "        torch.save(checkpoint, f'epoch{epoch}.pt')\n"
         "        os.symlink(f'epoch{epoch}.pt', 'new')\n"
         "        os.replace('new', self.path)\n"),
    ]),
}  # fmt: skip
