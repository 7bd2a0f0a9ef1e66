"""Slurm, Open MPI and ssh run the same file on nodes and get the same weights."""

import re
import time

import pytest

from tests.cluster.jobs import (
    PATIENCE,
    SHORT,
    Command,
    close,
    documented,
    facts,
    missing,
    ran,
)
from tests.cluster.training import ARGS, NOTICED, SAVE_EVERY, record
from tests.faults import most_repeated, same
from tests.processes import ROOT
from tools.cluster import Cluster, slurm, ssh
from tools.processes import Process

RECIPES = {  # Slurm's, and the files they call
    "slurm.sh": ["torchrun_c10d.sh", "torchrun_env.sh", "restarts.sh", "before.py"],
    "slurm_batch.sh": ["slurm_node.sh", "torchrun_static.sh", "before.py"],
}

NAMES = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT"
FOUR = [[str(rank), "4", str(rank % 2), "2", "node1"] for rank in range(4)]


@pytest.fixture(scope="module")
def with_slurm():
    with Cluster(2) as nodes:
        slurm.start(nodes)
        yield nodes


class Job:
    """A Slurm batch job; its output is in a file."""

    def __init__(self, nodes, folder, *words, **env):
        self.nodes, self.file = nodes, folder / "job.txt"
        said = ran(nodes, ["sbatch", "--parsable", f"--chdir={folder}", f"--output={self.file}",
                           "--nodes=2", *words], **{"NPROC": "2", **env})  # fmt: skip
        self.number = said.split()[-1]

    @property
    def said(self):
        return self.file.read_text() if self.file.exists() else ""

    def state(self):
        about = self.nodes.output("node1", ["scontrol", "show", "job", self.number])
        return re.search(r"JobState=(\w+)", about)[1]

    def wait(self, *states):
        end = time.monotonic() + PATIENCE
        while self.state() not in states:
            assert time.monotonic() < end, f"{self.state()}\n{self.said}"
            time.sleep(0.1)

    def again(self):
        """Skip the two minutes that Slurm lets a requeued job wait for its old processes to end."""
        self.wait("PENDING")
        # A node refuses a job that it has killed within the same second, and Slurm calls it failed.
        time.sleep(1)
        self.nodes.output("node1", ["scontrol", "update", f"jobid={self.number}", "StartTime=now"])

    def wait_for(self, pattern):
        end, over = time.monotonic() + PATIENCE, 0
        while not re.search(pattern, self.said):
            # Slurm may report a requeued job as failed for a moment.
            over = 0 if self.state() in ("PENDING", "RUNNING") else over + 1
            assert time.monotonic() < end and over < 200, f"{self.state()}\n{self.said}"
            time.sleep(0.05)


@missing(slurm.PROGRAMS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_batch_job_of_slurm(with_slurm, shared, one_node, recipe):
    for file in (shared / "launch").iterdir():
        if file.name not in (recipe, *RECIPES[recipe]):
            file.unlink()
    job = Job(with_slurm, shared, f"launch/{recipe}", *SHORT)
    job.wait("COMPLETED", "FAILED")
    assert job.state() == "COMPLETED", job.said
    assert close(shared / "multinode.pt", one_node)
    assert job.said.count("Epoch  4 | loss") == 1


@missing(slurm.PROGRAMS)
@pytest.mark.parametrize("environment", ["venv", "conda"])
def test_slurm_grants_the_optional_lines(environment, with_slurm, shared, switched_on):
    switched_on("slurm.sh", environment)
    job = Job(with_slurm, shared, "--export=NIL", "launch/slurm.sh", "facts.py", NPROC="")
    job.wait("COMPLETED", "FAILED")
    assert job.state() == "COMPLETED", job.said
    assert facts(job.said) == [(str(rank), "4", environment, "-1") for rank in range(4)]
    about = with_slurm.output("node1", ["scontrol", "show", "job", job.number])
    for granted in ("TimeLimit=08:00:00", "MinMemoryNode=64G", "TresPerNode=gres:gpu:2"):
        assert granted in about


@missing(slurm.PROGRAMS)
def test_processes_that_srun_starts(with_slurm, shared, one_node):
    words = ["srun", f"--chdir={shared}", "-N2", "--ntasks-per-node=2", "--kill-on-bad-exit=1"]
    words += ["sh", "launch/ranks.sh"]
    named = ran(with_slurm, [*words, "sh", "-c", NAMES]).splitlines()
    assert [line.split()[:5] for line in sorted(named)] == FOUR
    assert len({line.split()[5] for line in named}) == 1  # all have the same port
    said = ran(with_slurm, [words[0], words[1], *documented("ranks.sh", "srun")[1:-3], *SHORT])
    assert said.count("Epoch  4 | loss") == 1
    assert close(shared / "multinode.pt", one_node)


@missing(slurm.PROGRAMS)
def test_a_job_that_goes_back_into_the_queue(with_slurm, shared, undisturbed):
    """Near its time limit it requeues itself; then a more urgent job takes its nodes."""
    job = Job(with_slurm, shared, "launch/slurm.sh", *ARGS, NPROC="1")
    job.wait_for("Epoch 1[0-9] . loss")
    with_slurm.output("node1", ["scancel", "--batch", "--signal=USR1", job.number])
    job.again()
    job.wait_for(r"(?s)Resuming.*Epoch 2[0-9] . loss")
    assert "goes back into the queue" in job.said
    urgent = time.monotonic()
    ran(with_slurm, ["srun", "--partition=urgent", "--nodes=2", "--exclusive", "true"])
    noticed = time.monotonic() - urgent  # the urgent job has run
    assert noticed < 2 * NOTICED
    job.again()
    job.wait_for("(?s)Resuming.*Resuming")
    record("Slurm puts a more urgent job first", noticed, time.monotonic() - urgent)
    job.wait("COMPLETED", "FAILED")
    assert job.state() == "COMPLETED", job.said
    assert job.said.count("Resuming after epoch") == 2
    assert most_repeated(job.said.splitlines(), SAVE_EVERY) <= SAVE_EVERY
    assert same(shared / "multinode.pt", undisturbed)


@pytest.fixture
def with_ssh():
    with Cluster(2) as nodes:
        ssh.start(nodes)
        yield nodes


def mpirun(nodes, folder, processes):
    """The documented command, up to the script; the environment says how this cluster differs."""
    env = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm_rsh_args": f"-F {nodes.place}/ssh/client",
        "OMPI_MCA_oob_tcp_if_include": "eth0", "OMPI_MCA_btl_tcp_if_include": "eth0",
    }  # fmt: skip
    words = documented("ranks.sh", "mpirun")
    words = [word.replace(":2", f":{processes}") for word in words[: words.index("python")]]
    there = ["sh", "-c", 'cd "$0" && exec "$@"', folder]
    return ["env", *(f"{name}={value}" for name, value in env.items()), *there, *words]


@missing({"mpirun": "openmpi-bin", **ssh.PROGRAMS})
def test_open_mpi(with_ssh, shared, one_node):
    words = mpirun(with_ssh, shared, 2)
    named = ran(with_ssh, [*words, "sh", "-c", NAMES]).splitlines()
    # Sometimes Open MPI warns that ssh ran before it had its own process group.
    named = [line for line in named if "plm:rsh: Warning: setpgid" not in line]
    assert [line.split()[:5] for line in sorted(named)] == FOUR
    said = ran(with_ssh, [*words, "python", *SHORT])
    assert said.count("Epoch  4 | loss") == 1
    assert close(shared / "multinode.pt", one_node)


@missing(ssh.PROGRAMS)
def test_a_list_of_hosts(with_ssh, shared, one_node):
    def over_ssh(*words):
        start = ["sh", "-c", 'cd "$0" && exec sh launch/ssh.sh "$@"', shared, "sh", *words]
        rsh = f"ssh -tt -F {with_ssh.place}/ssh/client"
        return ran(with_ssh, start, RSH=rsh, HOSTS="node1 node2", NPROC="2")

    assert sorted(over_ssh("-c", "echo $NODE_RANK").splitlines()) == ["0", "1"]
    said = over_ssh("launch/torchrun_c10d.sh", *SHORT)
    assert said.count("Epoch  4 | loss") == 1
    assert close(shared / "multinode.pt", one_node)


@missing(ssh.PROGRAMS)
def test_the_ssh_config_trusts_known_hosts_alone_and_forwards_no_agent(with_ssh, tmp_path):
    place = with_ssh.place / "ssh"
    text = (ROOT / "launch" / "ssh.conf").read_text()
    text = text.replace("~/.ssh/cluster", f"{place}/user")
    others = "Host *\n    StrictHostKeyChecking no\n    ForwardAgent yes\n"  # as other guides say
    known = f"    UserKnownHostsFile {tmp_path}/known\n"
    (tmp_path / "config").write_text(text + known + others)
    (tmp_path / "known").write_text((place / "known").read_text())
    words = ["ssh", "-F", str(tmp_path / "config"), "node2", "echo $(hostname) $SSH_AUTH_SOCK."]
    with Process(["ssh-agent", "-D", "-a", tmp_path / "agent"]):
        with_ssh.until((tmp_path / "agent").exists, "no ssh agent")
        assert ran(with_ssh, words, SSH_AUTH_SOCK=str(tmp_path / "agent")) == "node2 .\n"
    other = (place / "user.pub").read_text().split()[:2]
    for known in ("", " ".join(["node2", *other])):
        (tmp_path / "known").write_text(known + "\n")
        refused = Command(with_ssh, "node1", words)
        assert refused.wait(PATIENCE) == 255
        refused.wait_for("Host key verification failed")
