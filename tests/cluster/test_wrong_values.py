"""Every recipe answers a wrong value of its variables by one line, before it starts anything."""

import re
import subprocess

import pytest

from tests.cluster.jobs import PATH
from tests.processes import ROOT

LAUNCH = ROOT / "launch"
SLURM = {"SLURM_JOB_ID": "77", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]"}
RIGHT = {
    "torchrun_c10d": {"NNODES": "2", "ENDPOINT": "localhost:1"},
    "torchrun_static": {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "localhost"},
    "ranks": {
        "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "MASTER_ADDR": "node1",
    },
    "slurm": SLURM,
    "slurm_batch": SLURM,
    "ssh": {"HOSTS": "node1 node2", "RSH": "srun"},
}  # fmt: skip
RIGHT["distributed_launch"] = RIGHT["torchrun_static"]
WRONG = {  # before.py and the shells refuse these; one of each kind
    "torchrun_c10d": [
        "NNODES=0", "NNODES=two", "NNODES=2:1", "NNODES=", "NPROC=-1", "MAX_RESTARTS=x",
        "JOIN_TIMEOUT=1.5", "JOIN_TIMEOUT=08", "JOB=a/b", "ENDPOINT=", "ENDPOINT=node1",
        "ENDPOINT=node1:65536", "ENDPOINT=a..b:29500",
    ],
    "torchrun_static": ["NODE_RANK=", "NODE_RANK=2", "MASTER_ADDR=", "MASTER_PORT=x"],
    "distributed_launch": ["NODE_RANK=2"],
    "ranks": ["MASTER_ADDR=", "MASTER_PORT=x", "MASTER_PORT=99999"],
    "slurm": ["NPROC=x", "NPROC=08", "SLURM_JOB_NUM_NODES="],
    "slurm_batch": ["SLURM_JOB_NUM_NODES="],
    "ssh": ["HOSTS= "],
}  # fmt: skip


@pytest.fixture
def start(tmp_path):
    """Runs a recipe with `python -m`, torchrun, srun and scontrol that only print."""
    fake = '#!/bin/sh\necho STARTED "$@"\n'
    for name in ("torchrun", "srun", "scontrol", "python"):
        (tmp_path / name).write_text(fake)
        (tmp_path / name).chmod(0o755)

    def run(recipe, *words, **env):
        shell = "bash" if recipe.startswith("slurm") else "sh"
        env = {"PATH": f"{tmp_path}:{PATH}", "JOIN_TIMEOUT": "3", **RIGHT[recipe], **env}
        return subprocess.run(
            [shell, str(LAUNCH / f"{recipe}.sh"), *words], env=env, cwd=ROOT, text=True,
            capture_output=True, timeout=120,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("recipe", RIGHT)
def test_without_a_mistake_it_starts(recipe, start):
    ran = start(recipe, "torchrun", "x.py")
    assert ran.returncode == 0 and "STARTED" in ran.stdout
    says = "run on each of the 2 nodes: .*\n" if recipe == "torchrun_c10d" else ""
    assert re.fullmatch(says, ran.stderr)


@pytest.mark.parametrize("recipe, wrong", [(name, one) for name in WRONG for one in WRONG[name]])
def test_a_wrong_value_gets_one_line(recipe, wrong, start):
    name, _, text = wrong.partition("=")
    ran = start(recipe, "torchrun", "x.py", **{name: text})
    # Where a variable is missing, bash exits with 1 or 127, and other shells with 2.
    assert ran.returncode in ((2,) if text.strip() else (1, 2, 127))
    (line,) = ran.stderr.splitlines()
    shown = f"the endpoint is '{text}'" if name == "ENDPOINT" else f"{name} is {text!r}"
    shown = "the endpoint is 'localhost:" if name == "MASTER_PORT" and recipe != "ranks" else shown
    assert name in line if not text.strip() else shown in line or "NNODES is 2:1" in line
    assert "STARTED" not in ran.stdout


@pytest.mark.parametrize("wrong", ["NPROC=x", "JOIN_TIMEOUT=x"])
def test_variables_of_the_shell_that_are_not_exported(wrong):
    line = f"ENDPOINT=localhost:1; {wrong}; . launch/torchrun_env.sh"
    ran = subprocess.run(
        ["sh", "-c", line], env={"PATH": PATH}, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2 and ran.stderr.startswith(f"{wrong.partition('=')[0]} is ")


@pytest.mark.parametrize("recipe", RIGHT)
def test_nothing_to_run(recipe, start):
    ran = start(recipe)
    assert ran.returncode == (1 if "slurm" in recipe else 2) and ran.stdout == ""
    assert "what to run" in ran.stderr and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("recipe", [*RIGHT, "gridengine", "slurm_node"])
def test_help_is_the_comment_at_the_top(recipe):
    words = ["sh", str(LAUNCH / f"{recipe}.sh"), "--help"]  # and none of the variables
    ran = subprocess.run(words, env={"PATH": PATH}, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    top = (LAUNCH / f"{recipe}.sh").read_text().split("\n", 3)[1:3]
    assert ran.stdout.startswith("".join(f"{line[2:]}\n" for line in top if line != "#"))
    assert "SBATCH" not in ran.stdout and "set -" not in ran.stdout


ODD = 'it\'s; echo OUCH $HOME `id` "x" *'


@pytest.mark.parametrize("name", ["JOB", "NCCL_ODD"])
def test_ssh_passes_every_value_as_it_is(name, start, tmp_path):
    """The remote shell, here a local one, gets the line that ssh would pass to it."""
    (tmp_path / "srun").write_text('#!/bin/sh\nexec sh -c "$2"\n')
    ran = start(
        "ssh", "sh", "-c", f'echo "${name}|$0|$1"', ODD, "a b", HOSTS="node1", **{name: ODD}
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{ODD}|{ODD}|a b\n", "")
