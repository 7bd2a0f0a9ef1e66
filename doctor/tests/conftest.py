"""Find the package beside this folder, and offer to record anew."""


def pytest_addoption(parser):
    parser.addoption("--record", action="store_true", help="write facts/ again, with -m soak")
