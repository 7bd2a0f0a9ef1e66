"""Nodes as namespaces. One process holds each node, and the node ends with it."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import processes
from tools.errors import UserError

from . import late

NETWORK = "10.77.0."
BURST = 16_384  # bytes that pass a limited link at once, or more: those of a millisecond
QUEUE = 10_000_000  # bytes that wait before it, until packets are dropped
# Process 1 of a node waits for the end of its input, and reaps orphaned processes.
INIT = "exec 3<&0 </dev/null >/dev/null 2>&1; cat <&3 & wait $!"


class Cluster:
    """Up to 200 nodes, node1 onwards, at 10.77.0.11 onwards, on their own switch.

    The nodes end with the process that made them, even after SIGKILL. Raises UserError without
    root, or for an unknown node.
    """

    def __init__(self, size: int):
        self.size = size
        self.place: Path | None = None  # the folder of all files
        self.environment: dict[str, str] = {}  # what a scheduler's commands need
        self._holders: dict[str, subprocess.Popen] = {}
        self._first: dict[str, str] = {}  # pid on the host of each node's process 1
        self._daemons: list[tuple[str, list[str]]] = []
        self._running: list[subprocess.Popen] = []
        self._relays: dict[str, subprocess.Popen] = {}  # of the nodes whose packets come late

    def __enter__(self) -> "Cluster":
        try:
            return self.up()
        except BaseException:
            self.down()
            raise

    def __exit__(self, *_):
        self.down()

    def up(self) -> "Cluster":
        if os.geteuid() != 0 or not sys.platform.startswith("linux"):
            raise UserError(
                "nodes are Linux namespaces, which need root: sudo env PATH=$PATH python -m "
                "tools.cluster 3; without root, python docs/labs/nodes.py plays two nodes"
            )
        if not shutil.which("ip"):
            raise UserError("the program ip is missing: install iproute2")
        if not 1 <= self.size <= 200:
            raise UserError(f"{self.size} nodes: ask for 1 to 200")
        self.place = Path(tempfile.mkdtemp(prefix="cluster-"))
        self.place.chmod(0o755)  # for daemons that do not run as root
        names = [f"node{number}" for number in range(1, self.size + 1)]
        lines = [f"{self.address(name)} {name}\n" for name in names]
        (self.place / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        self._hold("switch", "ip link add switch type bridge; ip link set switch up")
        for name in names:
            self._add(name)
        return self

    def needs(self, programs: dict[str, str]):
        """Raises UserError if a program is missing. `programs` maps each to its package."""
        missing = {name for name in programs if not shutil.which(name, path=_path())}
        if missing:
            packages = " ".join(sorted({programs[name] for name in missing}))
            raise UserError(f"no {', '.join(sorted(missing))} here: apt install {packages}")

    def _add(self, name):
        self.folder(name).mkdir()
        self.temporary(name).mkdir()
        hosts = self.place / f"hosts.{name}"  # its own, so that a test may break it
        shutil.copy(self.place / "hosts", hosts)
        self._hold(
            name,
            f"hostname {name}; mount --bind {hosts} /etc/hosts; ip link set lo up; "
            # Some systems use BBR, which takes the pauses between messages for a slow link.
            "echo reno >/proc/sys/net/ipv4/tcp_congestion_control",
        )
        node, switch, port = self._first[name], self._first["switch"], f"to-{name}"
        words = f"ip link add eth0 netns {node} type veth peer name {port} netns {switch}"
        _run(words.split())
        self._at("switch", f"ip link set {port} master switch; ip link set {port} up")
        self._at(name, f"ip addr add {self.address(name)}/24 dev eth0; ip link set eth0 up")
        # A machine that boots announces its new network card. A namespace does not, so make the
        # others ask; otherwise they send to the old card for up to a minute.
        for other in set(self.nodes) - {name}:
            self._at(other, "ip neigh flush dev eth0")

    def _hold(self, name, prepare):
        """Start a process in its own namespaces, after the commands in `prepare`.

        When this process ends, the node's input ends, and with it the node.
        """
        process = self._holders[name] = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc", "sh", "-ec", f"{prepare}; echo ready; {INIT}"],
            start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        with process.stdout, process.stderr:
            if not process.stdout.readline():
                said = process.stderr.read().decode().strip()
                raise UserError(f"cannot make {name}: {said or 'no reason given'}")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        self._first[name] = children.split()[0]

    def down(self):
        """End all nodes and everything that runs on them, and delete their folders."""
        for name in list(self._holders):
            self._end(name)
        for process in (*self._running, *self._relays.values()):
            process.wait()
        self._running, self._relays = [], {}
        if self.place:
            shutil.rmtree(self.place, ignore_errors=True)

    def _end(self, name):
        """End process 1 of a node and wait for it: the kernel kills the node's other processes."""
        process = self._holders.pop(name)
        process.stdin.close()
        process.wait()

    @property
    def nodes(self) -> list[str]:
        return [name for name in self._holders if name != "switch"]

    def address(self, name: str) -> str:
        return f"{NETWORK}{10 + int(name.removeprefix('node'))}"

    def folder(self, name: str) -> Path:
        """The folder in which a node's processes start. It plays a disk that only this node has."""
        return self.place / name

    def temporary(self, name: str) -> Path:
        """The node's /tmp. Each node needs its own: names of its files are unique per node only."""
        return self.place / f"tmp.{name}"

    def command(self, name: str, words: list[str], env=None) -> dict:
        """`words` and `env` that run a command on a node, in its folder."""
        own = {"HOSTNAME": name, "TMPDIR": str(self.temporary(name))}
        own |= {**self.environment, **(env or {})}
        words = [*self._enter(name), f"--wd={self.folder(name)}", "--", *words]
        return {"words": words, "env": {**os.environ, **own}}

    def run(self, name: str, words: list[str], env=None, **options) -> subprocess.Popen:
        """Start a command on a node. `options` go to Popen."""
        command = self.command(name, words, env)
        return subprocess.Popen(command["words"], env=command["env"], **options)

    def output(self, name: str, words: list[str]) -> str:
        """Run a command on a node. Returns what it prints, errors too; "" after a minute."""
        with contextlib.suppress(UserError):
            return processes.run(**self.command(name, words), limit=60).out
        return ""

    def serve(self, daemons: list[tuple[str, list[str]]]):
        """Start daemons, each on a node or on the "switch", which outlives all nodes.

        A replaced node starts its daemons again. They print to `place`/NODE.log.
        """
        self._daemons += daemons
        for name, words in daemons:
            self._serve(name, words)

    def _serve(self, name, words):
        environment = {**os.environ, **self.environment, "PATH": _path()}
        with open(self.place / f"{name}.log", "a") as log:
            self._running.append(subprocess.Popen(
                [*self._enter(name), "--", *words], env=environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            ))  # fmt: skip

    def until(self, condition, complaint: str, limit: float = 30):
        """Wait until `condition()` is true. Raises UserError after `limit` seconds."""
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                logs = [log.read_text().strip() for log in self.place.glob("*.log")]
                said = " | ".join(text.rpartition("\n")[2] for text in logs if text)
                raise UserError(f"{complaint} in {limit:.0f} s: {said or 'it printed nothing'}")
            time.sleep(0.05)

    def cut(self, name: str):
        """Unplug a node: what it sends is lost, and no process gets an error."""
        self._known(name)
        self._at("switch", f"ip link set to-{name} down")

    def heal(self, name: str):
        self._known(name)
        self._at("switch", f"ip link set to-{name} up")

    def limit(self, name: str, rate: str = "", delay: str = ""):
        """Limit what a node sends and what it receives, each to `rate`, such as "10mbit".

        With `delay`, such as "5ms", each packet to or from the node comes that much later. What is
        not given is unlimited again. A replaced node starts unlimited.
        """
        self._known(name)
        bits, wait = re.fullmatch(r"(\d+)([kmg])bit|", rate), re.fullmatch(r"(\d+)ms|", delay)
        if not (bits and wait):
            raise UserError(f"{rate} {delay}".strip() + ": a limit must be like 10mbit 5ms")
        self._direct(name)
        for at, port in ((name, "eth0"), ("switch", f"to-{name}")):
            self._at(at, f"tc qdisc del dev {port} root 2>/dev/null || :")
            if rate:
                burst = max(BURST, int(bits[1]) * 10 ** (3 * " kmg".index(bits[2])) // 8000)
                words = f"tc qdisc add dev {port} root tbf rate {rate}"
                self._at(at, f"{words} burst {burst} limit {QUEUE}")
        if wait[1]:
            self._late(name, int(wait[1]) / 1e3)

    def _late(self, name, seconds):
        """Put late.py between a node's port and the switch. (Not every kernel has tc's netem.)"""
        port, near, far = f"to-{name}", f"near-{name}", f"far-{name}"
        self._at(
            "switch",
            f"ip link add {near} type veth peer name {far}; ip link set {far} master switch; "
            f"ip link set {near} up; ip link set {far} up; ip link set {port} nomaster",
        )
        words = [sys.executable, late.__file__, port, near, str(seconds)]
        process = self._relays[name] = subprocess.Popen(
            [*self._enter("switch"), "--", *words], start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        if not process.stdout.readline():
            raise UserError(f"no delay for {name}: late.py ended with {process.wait()}")

    def _direct(self, name):
        """Undo `_late`."""
        if name in self._relays:
            with self._relays.pop(name) as process:  # it ends with its input
                process.stdin.close()
            self._at("switch", f"ip link del near-{name}; ip link set to-{name} master switch")

    def kill(self, name: str):
        """Kill all processes of a node at once; its disk stays. To unplug a node, `cut` it."""
        self._known(name)
        self._direct(name)
        self._end(name)
        # Left alone, the kernel removes the cable later, when a new node may already have one.
        self._at("switch", f"ip link del to-{name} 2>/dev/null || :")

    def replace(self, name: str):
        """Put a new machine with an empty disk there, with the old name and address."""
        if name in self.nodes:
            self.kill(name)
        if not (self.place / f"hosts.{name}").exists():
            raise UserError(self._none(name))
        for disk in (self.folder(name), self.temporary(name)):
            shutil.rmtree(disk)
        self._add(name)
        for at, words in self._daemons:
            if at == name:
                self._serve(at, words)

    def _known(self, name):
        if name not in self.nodes:
            raise UserError(self._none(name))
        return name

    def _none(self, name):
        return f"no node is called {name!r}; running: {', '.join(self.nodes) or 'none'}"

    def _enter(self, name):
        if name != "switch":
            self._known(name)
        return ["nsenter", "-t", self._first[name], "--net", "--uts", "--mount", "--pid"]

    def _at(self, name, command):
        _run([*self._enter(name), "sh", "-ec", command])


def _path():
    """PATH with the folders of daemons, which not every shell has."""
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _run(words):
    ran = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ran.returncode:
        raise UserError(f"{ran.stderr.strip() or ran.returncode}: {' '.join(words)}")
