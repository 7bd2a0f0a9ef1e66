"""Right and wrong answers to the exercises of beyond/."""

import pytest

from tests.workshop.scripts import BEYOND, assert_right, changed, mistake

RATE = "1e-3 * dist.get_world_size()"
NODE = "    node, _ = dist.new_subgroups(int(os.environ["
CONSOLIDATE = "        self.optimizer.consolidate_state_dict()  # every rank must call this\n"
OWN = "Subset(dataset, range(start, end))"
STATE = "        dist.broadcast_object_list(state, src=dist.get_world_size() - 1)\n"
JOIN = "        with Join([self.model]):\n            yield from self.train_data\n"
AVERAGE = "            dist.all_reduce(tensor.detach().div_(dist.get_world_size()))\n"
SEED = "epoch * dist.get_world_size() + dist.get_rank()"

SOON = ("the parts of the others are not fetched", "a seed that another rank has later",
        "the state of the rank with the fewest steps")  # fmt: skip
WRONG = {
    "a rate for two processes": (
        "scale_lr", [(RATE, "2e-3")], "rate-grows", "first step was 0.0020 times",
    ),
    "a loss that is multiplied in place of the rate": (
        "scale_lr",
        [(RATE, "1e-3"), ("loss.backward()", "(loss * dist.get_world_size()).backward()")],
        "rate-grows", "first step was 0.0010 times",
    ),
    "each process steps by itself": (
        "zero", [("momentum=0.9)", "momentum=0.0)")], "state-is-divided", "no process has a state",
    ),
    "the parts of the others are not fetched": (
        "zero",
        [(CONSOLIDATE, ""),
         ('"optimizer": self.optimizer.state_dict()',
          '"optimizer": self.optimizer.optim.state_dict()')],
        "state-is-divided", "rank 0 saved without the state of rank 1",
    ),
    "groups over all nodes": (
        "zero", [(NODE, "    node, _ = dist.group.WORLD, (["), ("]))\n    opt", "])\n    opt")],
        "saved-on-every-node", "node2 wrote nothing",
    ),
    "equal shares": (
        "uneven", [(OWN, "Subset(dataset, range(rank, len(dataset), ranks))")],
        "trains-to-the-end", "made 11, 11, 11, 11 steps",
    ),
    "as many batches as the rank with the fewest": (
        "uneven",
        [(JOIN, "        yield from list(self.train_data)[:3]\n")],
        "trains-to-the-end", "made 3, 3, 3, 3 steps",
    ),
    "the state of the rank with the fewest steps": (
        "uneven", [(STATE, STATE.replace("dist.get_world_size() - 1", "0"))],
        "trains-one-model", "after epoch 2, rank 0 saved other weights or another state",
    ),
    "the weights of rank 0": (
        "local_sgd",
        [(AVERAGE, "            dist.broadcast(tensor.detach(), src=0)\n")],
        "averages-now-and-then", "before step 11 they were not the mean",
    ),
    "an average in every step": (
        "local_sgd", [("SYNC_EVERY = 10 ", "SYNC_EVERY = 1 ")],
        "averages-now-and-then", "equal before steps 1, 2, 3",
    ),
    "a seed that another rank has later": (
        "random_seed_offset", [(SEED, "epoch + dist.get_rank()")],
        "draws-its-own", "what rank 0 in epoch 2",
    ),
    "a seed without the epoch": (
        "random_seed_offset", [(SEED, "dist.get_rank()")],
        "draws-its-own", "rank 0 drew in epoch 2 what rank 0 in epoch 1",
    ),
}  # fmt: skip

RIGHT = {
    "the rate is set afterwards": (
        "scale_lr",
        [(RATE, "1e-3"),
         ("    return dataset, model, optimizer\n",
          "    for group in optimizer.param_groups:\n"
          '        group["lr"] *= dist.get_world_size()\n'
          "    return dataset, model, optimizer\n")],
    ),
    "Join around the loop": (
        "uneven",
        [(JOIN, "        with Join([self.model]):\n"
                "            for batch in self.train_data:\n"
                "                yield batch\n"),
         (STATE, "        dist.broadcast_object_list(state, dist.get_world_size() - 1)\n")],
    ),
    "copies joined to one vector": (
        "local_sgd",
        [("            self._average(self.model.parameters())\n        return",
          "            vector = torch.nn.utils.parameters_to_vector(self.model.parameters())\n"
          "            vector = vector.detach()\n"
          "            dist.all_reduce(vector)\n"
          "            vector /= dist.get_world_size()\n"
          "            torch.nn.utils.vector_to_parameters(vector, self.model.parameters())\n"
          "        return")],
    ),
    "another seed": ("random_seed_offset", [(SEED, "1000 * dist.get_rank() + epoch")]),
}  # fmt: skip


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in SOON else pytest.mark.soak)
    for name in WRONG if WRONG[name][0] in BEYOND
])  # fmt: skip
def test_a_wrong_answer_is_named(name):
    lesson, changes, check, evidence = WRONG[name]
    found, told = mistake(lesson, changed(lesson, *changes))
    assert found == check and evidence in told, (found, told)


@pytest.mark.parametrize("name", [name for name in RIGHT if RIGHT[name][0] in BEYOND])
def test_another_right_answer_passes(name):
    lesson, changes = RIGHT[name]
    assert_right(lesson, changed(lesson, *changes))
