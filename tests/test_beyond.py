"""What every lesson beyond the spine claims of its weights, proven by ranks in threads."""

import pytest

from tests.faults import same
from tests.lessons import distance, resumed, train
from tests.processes import LESSONS

CLOCKS = ("local_sgd_by_time", "look_inside")  # the clock decides; the profiler is the process's
RESUMING = [
    name
    for name, lesson in LESSONS.lessons.items()
    if lesson.file.startswith("beyond/") and "_load_checkpoint" in lesson.source.text
]
EVERY_STEP = ("SYNC_EVERY = 10", "SYNC_EVERY = 1")
RATE_1 = ('{"lr": 0.7, "momentum": 0.9, "nesterov": True}', '{"lr": 1}')
SUM = ("loss.backward()", "(loss * dist.get_world_size()).backward()")  # of gradients, not the mean
ADAM = ("SGD(model.parameters(), lr=1e-3, momentum=0.9)", "Adam(model.parameters(), lr=1e-2)")
# lesson, changes, another script, its changes, sizes, the largest difference of a weight
EQUAL = [
    ("explicit_gradients", (), "multinode", (), (1, 2), 0),
    ("explicit_gradients", (), "multinode", (), (4, 8), 1e-6),  # adds in another order
    ("comm_hooks@1", (), "multinode", (), (2, 4, 8), 1e-6),
    ("zero", (), "multinode", (), (1, 2, 4, 8), 0),
    ("scale_lr", (), "multinode", (SUM,), (1, 2, 4, 8), 0),
    ("local_sgd", (EVERY_STEP,), "multinode", (), (1, 2, 4, 8), 1e-6),
    ("diloco", (EVERY_STEP, RATE_1), "local_sgd", (EVERY_STEP,), (2, 4, 8), 1e-7),
    ("uneven", (), "single_gpu", (), (1,), 0),
    ("random_seed_offset", (), "single_gpu", (), (1,), 0),
]
DIFFERENT = [
    ("comm_hooks", (), "multinode", (), 1e-6),
    ("scale_lr", (), "multinode", (), 1e-2),
    ("local_sgd", (), "multinode", (), 1e-6),
    ("local_sgd", (EVERY_STEP, ADAM), "multinode", (ADAM,), 1e-4),  # own second moments
    ("diloco", (), "local_sgd", (), 1e-2),
]


def both(row, size, folder):
    lesson, changes, other, others = row
    return (
        train(lesson, folder, 2, size=size, changes=changes)[0],
        train(other, folder, 2, size=size, changes=others)[0],
    )


@pytest.mark.parametrize(
    "row, size",
    [
        pytest.param(row, size, id=f"{row[0]}-{size}")
        for row in EQUAL
        for size in row[4]
        if row[0].partition("@")[0] in LESSONS.lessons
    ],
)
def test_it_trains_as_another_script(row, size, tmp_path):
    one, other = both(row[:4], size, tmp_path)
    assert distance(one, other) <= row[5]
    if row[0] != "scale_lr":  # whose sums are larger
        assert distance(one["optimizer"]["state"], other["optimizer"]["state"]) <= 10 * row[5]


@pytest.mark.parametrize("row", [row for row in DIFFERENT if row[0] in LESSONS.lessons])
def test_it_trains_otherwise(row, tmp_path):
    """A tolerance that this does not exceed would prove nothing above."""
    assert distance(*both(row[:4], 2, tmp_path)) > row[4]


@pytest.mark.parametrize(
    "lesson, changes",
    [(name, ()) for name in RESUMING if name not in CLOCKS]
    + [(name, (ADAM,)) for name in RESUMING if name == "local_sgd"],
)
def test_a_resumed_run_ends_like_an_undisturbed_one_on_every_node(lesson, changes, tmp_path):
    """Two epochs have 64 steps: 4 more than those after which local_sgd and diloco average."""
    size = 2 if lesson == "comm_hooks" else 4  # a sum of two has no order that may differ
    where = {"size": size, "nodes": 2, "changes": changes}
    undisturbed = train(lesson, tmp_path, 3, 2, **where)
    assert [rank for rank in range(size) if undisturbed[rank]] == [0, size // 2]  # local rank 0
    assert same(undisturbed[0], undisturbed[size // 2])
    assert same(undisturbed, resumed(lesson, tmp_path, 2, 3, **where))
