from tests.mingpt.conftest import text  # noqa: F401  a fixture
