"""Mistakes that no exercise has. The checks find them too, and name rank and step."""

import re

from tests.workshop.scripts import changed, examined, mistake

STEP = "        self.optimizer.step()\n"
ZERO = "        self.optimizer.zero_grad()\n"
EPOCH = "            self._run_epoch(epoch)\n"


def found(lesson, *changes):
    return mistake(lesson, changed(lesson, *changes))


def test_gradients_that_are_summed():
    name, evidence = found(
        "multigpu",
        (STEP, "        for p in self.model.parameters():\n            p.grad *= 2\n" + STEP),
    )
    assert name == "gradient-is-mean"
    lengths = re.search(r"step 1 of epoch 1, rank 0 .* length ([\d.]+); .* has ([\d.]+)", evidence)
    assert 1.99 < float(lengths[1]) / float(lengths[2]) < 2.01, evidence


def test_gradients_left_over_from_the_step_before():
    name, evidence = found("multigpu", (ZERO, ""))
    assert name == "gradient-is-mean" and "step 2 of epoch 1" in evidence


def test_a_rank_that_draws_its_weights_after_ddp_has_made_them_equal():
    name, evidence = found(
        "multigpu",
        ("        self.train_data = train_data\n",
         "        if dist.get_rank() == 1:\n"
         "            torch.nn.init.zeros_(self.model.module.weight)\n"
         "        self.train_data = train_data\n"),
    )  # fmt: skip
    assert name == "stay-equal" and "ranks 0 and 1 " in evidence and "before the first" in evidence


def test_batches_that_are_dropped_at_the_end():
    name, evidence = found(
        "multigpu", ("batch_size, sampler=sampler)", "48, sampler=sampler, drop_last=True)")
    )
    assert name == "shared" and re.search(r"in epoch 1, no rank saw .*: 32 of 2,048", evidence)


def test_a_rank_that_works_for_ever_is_named_and_ended():
    loop = "            while epoch == 1 and dist.get_rank() == 1:\n                pass\n"
    name, evidence = found("multigpu", (EPOCH, EPOCH + loop))
    assert name == "all-take-part"
    assert re.search(r"rank 0 waits in backward", evidence), evidence
    assert re.search(r"rank 1 is at multigpu.py:\d+, in epoch 2", evidence), evidence


def test_ranks_that_all_wait():
    name, evidence = found("multigpu", (EPOCH, EPOCH + "            time.sleep(999 * epoch)\n"))
    assert name == "all-take-part"
    where = r"is at multigpu.py:\d+, in epoch 2"
    assert re.fullmatch(rf"rank 0 {where}; rank 1 {where}", evidence), evidence


def test_a_rank_that_fails():
    name, evidence = found(
        "multigpu",
        (EPOCH, EPOCH + "            assert epoch < 1 or dist.get_rank() < 1, 'too hot'\n"),
    )
    assert name == "ends-well"
    assert re.match(r"rank 1 ended with: AssertionError: too hot, multigpu.py:\d+", evidence)


def test_a_process_that_is_left_over():
    name, evidence = found(
        "multigpu", ("    trainer.train(args.total_epochs)\n",
                     "    trainer.train(args.total_epochs)\n"
                     "    import subprocess\n"
                     "    subprocess.Popen(['sleep', '300'])\n"),
    )  # fmt: skip
    assert (name, evidence[:2]) == ("ends-well", "2 ")


def test_a_checkpoint_that_only_rank_0_loads():
    name, evidence = found(
        "multinode", ("        if self.epochs_run > 0:\n",
                      "        if self.epochs_run > 0 and dist.get_rank() == 0:\n"),
    )  # fmt: skip
    assert name == "from-the-newest"
    assert "rank 0 (node1) began after epoch 3, rank 1 (node2) began after epoch 0" in evidence


def test_two_writers_on_a_node():
    name, evidence = found(
        "multinode", ("        if dist.get_node_local_rank() != 0:\n            return\n", "")
    )
    assert name == "saved-on-every-node"
    assert evidence == "after epoch 2, ranks 0 and 1 each wrote on node2"


def test_the_beginning_of_a_long_exception_is_kept():
    model = "model = torch.nn.Linear(20, 1)"
    spare = model + "\n    model.spare = torch.nn.Parameter(torch.zeros(3))"
    seen, _ = examined("multigpu", changed("multigpu", (model, spare)))
    assert "Expected to have finished reduction" in seen.crash["message"]


def test_a_training_that_diverges():
    name, evidence = found("multigpu", ("lr=1e-3", "lr=1e3"))
    assert (name, evidence.endswith("the training has diverged")) == ("is-global", True)
