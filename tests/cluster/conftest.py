"""Clusters made of namespaces. Without root, pytest skips these tests by name."""

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.jobs import POSSIBLE, SHORT, lay
from tests.cluster.training import ARGS, Training
from tests.processes import ROOT
from tools.cluster import Cluster

FACTS = """\
import os, resource, sys
memory = resource.getrlimit(resource.RLIMIT_AS)[0]
sys.stdout.write("facts {RANK} {WORLD_SIZE} {FROM} ".format(**os.environ) + f"{memory}\\n")
"""


@pytest.fixture(scope="module", autouse=True)
def quick_starts():
    """More than a hundred processes import torch: make that fast, except when we measure times."""
    with pytest.MonkeyPatch.context() as patch:
        if "CLUSTER_RECORD" not in os.environ:
            patch.setenv("PYTHONPATH", str(ROOT / "tools" / "quick"), prepend=os.pathsep)
        yield


@pytest.fixture
def cluster():
    """Makes clusters of a given size, and takes them down."""
    if not POSSIBLE:
        pytest.skip("nodes are namespaces: Linux, root and iproute2 are needed")
    with ExitStack() as stack:
        yield lambda size: stack.enter_context(Cluster(size))


@pytest.fixture(scope="session")
def one_node(trained):
    """The checkpoint of one node with four processes, trained with the arguments SHORT."""
    return trained("multinode", *SHORT[1:], nproc=4).folder / "multinode.pt"


@pytest.fixture(scope="session")
def undisturbed(trained):
    """The checkpoint of an undisturbed training."""
    return trained("multinode", *ARGS[1:]).folder / "multinode.pt"


@pytest.fixture
def training(cluster):
    return Training(cluster(2))


@pytest.fixture
def shared(tmp_path):
    """A folder that all nodes see, with the lesson and the recipes."""
    lay(tmp_path, "launch")
    return tmp_path


@pytest.fixture
def switched_on(shared):
    """Switches on the optional lines of a recipe: what to ask for, and an environment.

    Of those lines, only the home folder changes. The job is to run facts.py.
    """
    (shared / "facts.py").write_text(FACTS)
    (bin := shared / ".venv" / "bin").mkdir(parents=True)
    start = Path(sys.prefix, "bin", "activate").read_text()
    (bin / "activate").write_text(start + "\nexport FROM=venv\n")
    conda = shared / "miniconda3" / "etc" / "profile.d" / "conda.sh"
    conda.parent.mkdir(parents=True)
    # In place of conda, which Debian lacks. As conda's, it cannot run under `set -u`.
    steps = f"""[ "$*" = "activate ddp" ] && . {bin}/activate; export FROM=conda$unset"""
    conda.write_text(f"conda() {{ {steps}; }}\n")

    def switch(recipe, environment="venv"):
        file = shared / "launch" / recipe
        text, requests = re.subn("(?m)^##(SBATCH|[$])", r"#\1", file.read_text())
        text, lines = re.subn(rf"(?m)^#([.] .*{environment})", r"\1", text)
        assert (requests, lines) == (3, 1)
        file.write_text(text.replace("~/", f"{shared}/"))

    return switch
