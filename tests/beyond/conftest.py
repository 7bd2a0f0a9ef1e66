"""A lesson of beyond/ has its own claims in test_LESSON.py, which goes with it. The claims of all
are in tests/test_beyond.py, and much is proven by what the lesson's page shows."""

from tests.processes import LESSONS


def pytest_ignore_collect(collection_path, config):
    lesson = collection_path.stem.removeprefix("test_")
    return (collection_path.stem != lesson and lesson not in LESSONS.lessons) or None
