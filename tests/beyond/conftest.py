"""Each lesson of beyond/ has its proof in test_LESSON.py, and goes with it."""

from tests.processes import LESSONS


def pytest_ignore_collect(collection_path, config):
    lesson = collection_path.stem.removeprefix("test_")
    return (collection_path.stem != lesson and lesson not in LESSONS.lessons) or None
