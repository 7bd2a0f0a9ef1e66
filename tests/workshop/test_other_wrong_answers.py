"""Wrong answers whose run looks right, or whose cause is not where it shows."""

import re

import pytest

from tests.workshop.right_saves import RENAMED, SAVE, counted
from tests.workshop.scripts import changed, extra, mistake
from tests.workshop.test_other_right_answers import (
    BACKWARD,
    BARRIER,
    DDP,
    EPOCH,
    GROUP,
    LOADER,
    PORT,
)

TOTALS = "totals[0] += loss * len(source)"
COUNT = "totals[1] += len(source)"
REPORT = "        utils.report("
ZERO = "        self.optimizer.zero_grad()\n"
DEVICE = 'utils.set_device(int(os.environ["LOCAL_RANK"]))'
SPAWN = "    mp.spawn(worker, args=(world_size, args), nprocs=world_size)\n"

WRONG = {
    "a port in the script": (
        "multigpu", [(PORT, '"12355"')],
        "port-of-its-own", "they met at port 12355",
    ),
    "a port in the address": (
        "multigpu",
        [(GROUP,
          "init_process_group(\n"
          '        "gloo", init_method="tcp://127.0.0.1:29511", rank=int(os.environ["RANK"]),\n'
          '        world_size=int(os.environ["WORLD_SIZE"]))'), (PORT, '""')],
        "port-of-its-own", "they met at port 29511",
    ),
    "a last batch that is dropped": (
        "multigpu", [(LOADER, "batch_size, sampler=sampler, drop_last=True)")],
        "shared", "in epoch 1, no rank saw samples .*: 32 of 2,048",
    ),
    "the mean of the batches' means": (
        "multigpu", [(TOTALS, "totals[0] += loss"), (COUNT, "totals[1] += 1")],
        "is-global", r"the loss of epoch 1 was printed as ([\d.]+); over all ranks it is (?!\1)",
    ),
    "a loss divided by the number of ranks": (
        "multigpu", [(REPORT, "        totals[0] /= dist.get_world_size()\n" + REPORT)],
        "is-global", "the loss of epoch 1 was printed as 0.8931",
    ),
    "the old checkpoint removed before the new one is there": (
        "multigpu",
        [(SAVE, RENAMED.replace("        os.replace", (
            "        if os.path.exists(self.path):\n"
            "            os.remove(self.path)\n"
            "        os.rename")))],
        "saved-atomically", "rank 0 removed multigpu.pt before the next one was there",
    ),
    "a copy over the checkpoint": (
        "multigpu",
        [(SAVE, SAVE + "        import shutil\n"
                       "        shutil.copy(self.path, 'copy')\n"
                       "        shutil.copy('copy', self.path)\n")],
        "saved-atomically", "rank 0 wrote to multigpu.pt itself",
    ),
    "an open file of the checkpoint's name": (
        "multigpu",
        [(SAVE, "        with open(self.path, 'wb') as file:\n"
                "            torch.save(checkpoint, file)\n")],
        "saved-atomically", "rank 0 wrote straight to multigpu.pt",
    ),
    "from memory to the checkpoint's name": (
        "multigpu",
        [(SAVE, "        import io\n"
                "        buffer = io.BytesIO()\n"
                "        torch.save(checkpoint, buffer)\n"
                "        with open(self.path, 'wb') as file:\n"
                "            file.write(buffer.getvalue())\n")],
        "saved-atomically", "rank 0 wrote straight to multigpu.pt",
    ),
    "no fsync where the power may fail": (
        "multigpu", [(SAVE, RENAMED)],
        "survives-a-power-cut", "renamed multigpu.pt.part while its data could still be in memory",
    ),
    "a number that does not count": (
        "multigpu", [('"epochs_run": epoch + 1', '"epochs_run": self.save_every')],
        "saved-complete", "no number in the checkpoints",
    ),
    "no barrier": (
        "multigpu", [(BARRIER, "")],
        "left-the-group", "rank 0 wrote the last file, .* the ranks did not wait for each other",
    ),
    "a store that no rank waits for": (
        "multigpu",
        [(BARRIER, "    dist.distributed_c10d._get_default_store().set(f'saved{rank}', 'yes')\n")],
        "left-the-group", "rank 0 wrote the last file, .* the ranks did not wait for each other",
    ),
    "a barrier before the last save": (
        "multigpu", [(BARRIER, ""), (EPOCH, EPOCH + "            dist.barrier()\n")],
        "left-the-group", "rank 0 wrote the last file, .* the ranks did not wait for each other",
    ),
    "processes that are joined whatever happens": (
        "multigpu",
        [(SPAWN, SPAWN.replace("    mp", "    started = mp").replace("size)", "size, join=False)")
                 + "    for process in started.processes:\n        process.join()\n")],
        "ends-when-a-rank-fails", "the command ended with status 0",
    ),
    "an exception that is printed, and no more": (
        "multigpu",
        [("    main(args)\n    dist", "    try:\n"
                                      "        main(args)\n"
                                      "    except Exception as error:\n"
                                      "        print(error)\n"
                                      "        dist.destroy_process_group()\n"
                                      "        return\n"
                                      "    dist")],
        "ends-when-a-rank-fails", "rank 1 failed",
    ),
    "a failed rank that lives on": (
        "multigpu",
        [("    main(args)\n    dist", "    try:\n"
                                      "        main(args)\n"
                                      "    except RuntimeError:\n"
                                      "        time.sleep(999)\n"
                                      "    dist")],
        "ends-when-a-rank-fails", "the command did not end",
    ),
    "the rank as the device": (
        "multinode", [(DEVICE, DEVICE.replace("LOCAL_RANK", "RANK"))],
        "device-of-its-own", "on node2, rank 1 chose device 1",
    ),
    "one device for all": (
        "multigpu", [(DEVICE, "utils.set_device(0)")],
        "device-of-its-own", "ranks 0 and 1 chose device 0, 0",
    ),
    "DDP around a copy": (
        "multigpu", [(DDP, "DDP(__import__('copy').deepcopy(model))")],
        "gradient-is-mean", "does not have the parameters of the model that computes the loss",
    ),
    "gradients that are zeroed too late": (
        "multigpu", [(ZERO, ""), (BACKWARD, BACKWARD + ZERO)],
        "gradient-is-mean", "step 1 of epoch 1, .* of length 0; .*: the weights do not change",
    ),
    "the same, under torchrun": (
        "multigpu_torchrun", [(ZERO, ""), (BACKWARD, BACKWARD + ZERO)],
        "gradient-is-mean", "the weights do not change",
    ),
    "half a loss": (
        "multigpu", [(BACKWARD, "        (loss / 2).backward()\n")],
        "gradient-is-mean", r"used a gradient of length 0\.8\d+; the mean of all ranks' has 1\.6",
    ),
}  # fmt: skip
RARE = {
    "a gradient averaged by DDP and summed by hand": (
        "multigpu",
        [(BACKWARD, BACKWARD + "        for weight in self.model.parameters():\n"
                               "            dist.all_reduce(weight.grad)\n")],
        "gradient-is-mean", "step 1 of epoch 1",
    ),
    "one epoch skipped at a start": (
        "multigpu_torchrun",
        [("range(self.epochs_run, total", "range(self.epochs_run + 1, total")],
        "last-epoch-saved", "5 epochs were asked for, but 4 ran",
    ),
    "one epoch twice": (
        "multigpu_torchrun",
        counted('"epoch": epoch', '{"epoch": 0}', 'checkpoint["epoch"]'),
        "where-saved", r"after the restart rank 0 ran 4 epochs, not 3",
    ),
    "a count that is wrong in the last checkpoint": (
        "multigpu",
        [(" or epoch + 1 == total_epochs", ""),
         ("    trainer.train(args.total_epochs)\n",
          "    trainer.train(args.total_epochs)\n"
          "    trainer._save_checkpoint(args.total_epochs)\n")],
        "saved-complete", "no number in the checkpoints",
    ),
    "only the last epoch is saved": (
        "multigpu_torchrun", [("(epoch + 1) % self.save_every == 0 or ", "")],
        "last-epoch-saved", "nothing was saved after epoch 2",
    ),
    "fsync before the data is written": (
        "multigpu",
        [(SAVE, "        import io\n"
                "        buffer = io.BytesIO()\n"
                "        torch.save(checkpoint, buffer)\n"
                "        with open(self.path + '.part', 'wb') as file:\n"
                "            file.write(buffer.getvalue())\n"
                "            os.fsync(file.fileno())\n"
                "        os.replace(self.path + '.part', self.path)\n")],
        "survives-a-power-cut", "its data could still be in memory",
    ),
    "the old checkpoint renamed before the new one is there": (
        "multigpu",
        [(SAVE, RENAMED.replace("        os.replace", (
            "        if os.path.exists(self.path):\n"
            "            os.rename(self.path, 'old')\n"
            "        os.rename")))],
        "saved-atomically", "rank 0 removed multigpu.pt before the next one was there",
    ),
    "moved from what may be another disk": (
        "multigpu",
        [(SAVE, "        import shutil, tempfile\n"
                "        with tempfile.NamedTemporaryFile(delete=False) as file:\n"
                "            torch.save(checkpoint, file)\n"
                "        shutil.move(file.name, self.path)\n")],
        "saved-atomically", "from another disk that would be a copy",
    ),
    "a barrier for one rank": (
        "multigpu", [(BARRIER, "    if rank == 0:\n        dist.barrier()\n")],
        "all-take-part", "rank 0 calls barrier .*, rank 1 does not",
    ),
    "two processes, whatever was asked for": (
        "multigpu", [("utils.num_processes()", "2")],
        "one-process-each", "2 of 3 processes",
    ),
    "a mean over two ranks, however many there are": (
        "multigpu",
        [(DDP, "model.to(self.device)"),
         ("self.model.module.state_dict", "self.model.state_dict"),
         (BACKWARD, "        (loss / 2).backward()\n"
                    "        for weight in self.model.parameters():\n"
                    "            dist.all_reduce(weight.grad)\n")],
        "gradient-is-mean", "step 1 of epoch 1",
    ),
    "a prefix of which one letter is removed": (
        "multigpu",
        [("self.model.module.state_dict()",
          "{name[1:]: weight for name, weight in self.model.state_dict().items()}")],
        "saved-without-ddp", "a weight is called 'odule.weight'; the model calls it 'weight'",
    ),
    "a momentum that a restart changes": (
        "multigpu_torchrun",
        [('            self.optimizer.load_state_dict(checkpoint["optimizer"])\n',
          '            self.optimizer.load_state_dict(checkpoint["optimizer"])\n'
          "            self.optimizer.param_groups[0]['momentum'] = 0.5\n")],
        "with-the-optimizer", "in step 1 of epoch 3 before the restart, but its optimizer",
    ),
    "a learning rate that a resume on other nodes changes": (
        "multinode",
        [("            self.model.module.load_state_dict(checkpoint",
          '            checkpoint["optimizer"]["param_groups"][0]["lr"] = 1e-4\n'
          "            self.model.module.load_state_dict(checkpoint")],
        "with-the-optimizer", "the learning rate of rank 0 was 0.0001; before, it was 0.001",
    ),
    "weights that are divided among the ranks": (
        "multigpu",
        [(DDP, "model"),
         ("torch.nn.Linear(20, 1)", "fully_shard(torch.nn.Linear(20, 1))"),
         ("import utils\n",
          "from torch.distributed.checkpoint import state_dict as dcp\n"
          "from torch.distributed.fsdp import fully_shard\n\n"
          "import utils\n"),
         ("    def _save_checkpoint(self, epoch):\n",
          "    def _save_checkpoint(self, epoch):\n"
          "        options = dcp.StateDictOptions(full_state_dict=True)\n"
          "        weights, state = dcp.get_state_dict(\n"
          "            self.model, self.optimizer, options=options)\n"),
         ("self.model.module.state_dict()", "weights"),
         ("self.optimizer.state_dict()", "state")],
        "stay-equal", "each rank has a part of the weights",
    ),
    "a breakpoint": (
        "multigpu", [(EPOCH, EPOCH + "            breakpoint()\n")],
        "ends-well", r"breakpoint\(\) needs a terminal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*WRONG, *(pytest.param(n, marks=pytest.mark.soak) for n in RARE)])
def test_it_fails_and_its_cause_is_named(name):
    lesson, changes, check, seen = (WRONG | RARE)[name]
    checks = extra(check) if check == "survives-a-power-cut" else None
    found, evidence = mistake(lesson, changed(lesson, *changes), checks=checks)
    assert found == check and re.search(seen, evidence), evidence
