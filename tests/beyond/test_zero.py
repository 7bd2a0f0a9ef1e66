"""With ZeRO, each rank holds a part of the optimizer's state, and the file holds all of it."""

from tests.faults import same
from tests.lessons import resumed, train


def test_it_resumes_from_a_checkpoint_of_plain_sgd_and_plain_sgd_from_its(tmp_path):
    plain = train("multinode", tmp_path, 2)
    for lesson, start in (("zero", plain), ("multinode", train("zero", tmp_path, 2))):
        found = train(lesson, tmp_path, 3, 2, start={0: start[0]})
        assert same(found, resumed("multinode", tmp_path, 2, 3))
