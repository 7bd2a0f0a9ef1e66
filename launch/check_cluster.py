"""Will this cluster train? Run it on every node, before the first job; it needs no launcher.

    python launch/check_cluster.py --endpoint node1:29500

The node that the endpoint names waits for the others. Then each says what is wrong with it, and the
command or variable that mends it. The scripts in this folder, or the files named, are compared
between the nodes. If all is well and torch is installed, the nodes form a process group and time an
all-reduce at several sizes. Exit status 0 if this node is fine, else 1.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import socket
import statistics
import sys
import time
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

SKEW = 2.0  # seconds between two clocks from which logs and make-like tools go wrong
SIZES = (4, 1 << 20, 1 << 24)  # bytes


class Report:
    """What this node has to say, line by line; the first mend is the verdict."""

    def __init__(self, name):
        self.name, self.mends = name, []

    def say(self, text):
        print(f"{self.name}: {text}", flush=True)

    def bad(self, text, mend):
        self.say(f"BAD  {text}")
        self.mends.append(mend)

    def verdict(self):
        if not self.mends:
            self.say("VERDICT: ready")
            return 0
        self.say(f"VERDICT: not ready; {self.mends[0]}")
        return 1


def main():
    options = parse()
    report = Report(socket.gethostname())
    host, port = options.endpoint
    address = resolve(report, host)
    if address is None:
        return report.verdict()
    mine = own_address(address, port)
    facts = look_at_this_node(report, options, mine)
    facts["bad"] = len(report.mends)
    hosting = is_here(address)
    try:
        everyone = (receive if hosting else send)(options, address, port, facts)
    except OSError as error:
        report.bad(*why(options, hosting, error))
        return report.verdict()
    if compare(report, facts, everyone, options) and not options.no_group:
        time_all_reduce(report, everyone, facts, address, port)
    look_up(report, everyone, facts)
    return report.verdict()


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--endpoint", required=True, metavar="HOST:PORT", type=endpoint,
                        help="as you will give it to --rdzv-endpoint")  # fmt: skip
    parser.add_argument("--nnodes", type=int, default=2, help="default: 2")
    parser.add_argument("--node-rank", type=int, help="if you will give it to torchrun")
    parser.add_argument("--timeout", type=float, default=60, help="seconds to wait for the others")
    parser.add_argument("--no-group", action="store_true", help="do not time an all-reduce")
    parser.add_argument("files", nargs="*", help="that must be the same on all; default: *.py")
    options = parser.parse_args()
    options.files = options.files or sorted(str(path) for path in Path().glob("*.py"))
    if options.node_rank is not None and not 0 <= options.node_rank < options.nnodes:
        last = options.nnodes - 1
        parser.error(f"--node-rank is {options.node_rank}, but must be from 0 to {last}")
    return options


def endpoint(text):
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and 0 < int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, as node1:29500")
    return host, int(port)


def resolve(report, host):
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        report.bad(
            f"the name {host} does not resolve here ({error.strerror or error})",
            f"add a line 'ADDRESS {host}' to /etc/hosts, or give the endpoint by its address",
        )
        return None


def own_address(address, port):
    """The address that this node would use to reach the endpoint; no packet is sent."""
    if address.startswith("127."):  # it is the endpoint itself, and says so in /etc/hosts
        others = [one for has in addresses().values() for one in has if not one.startswith("127.")]
        return others[0] if others else address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, port))
            return probe.getsockname()[0]
        except OSError:
            return None


def is_here(address):
    """Whether it is one of this machine's own: only there can something listen."""
    try:
        socket.create_server((address, 0)).close()
    except OSError:
        return False
    return True


def look_at_this_node(report, options, mine):
    name, interfaces = socket.gethostname(), addresses()
    try:
        named = socket.gethostbyname(name)
    except OSError:
        named = None
        report.bad(
            f"the host name {name} does not resolve on {name} itself: gloo would stop at once",
            f"add a line '{mine} {name}' to /etc/hosts",
        )
    using = next((one for one, has in interfaces.items() if mine in has), None)
    if options.nnodes > 1 and (named or mine):
        say_address(report, name, named, mine, using, interfaces)
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        asked = os.environ.get(variable)
        if not asked:
            continue
        fits = [one for one in interfaces if matches(variable, asked, one)]
        if not fits:
            report.bad(f"{variable} is {asked}; there are: {', '.join(interfaces)}",
                       f"export {variable}={using}")  # fmt: skip
        elif using and using not in fits and options.nnodes > 1:
            report.bad(f"{variable} is {asked}, but the way to the others is {using}",
                       f"export {variable}={using}")  # fmt: skip
    loops = named and named.startswith("127.") and options.nnodes > 1
    if loops and not os.environ.get("GLOO_SOCKET_IFNAME"):
        report.bad(
            f"{name} resolves to {named} here: gloo would tell the others to connect to themselves",
            f"export GLOO_SOCKET_IFNAME={using or 'INTERFACE'}, or give {name} the address {mine} "
            "in /etc/hosts",
        )
    return {
        "name": name, "told": socket.getfqdn(), "named": named, "address": mine,
        "addresses": [one for has in interfaces.values() for one in has],
        "nnodes": options.nnodes, "node_rank": options.node_rank, "clock": time.time(),
        "versions": versions(), "files": {file: digest(report, file) for file in options.files},
        "devices": devices(report), "folder": folder_mark(),
    }  # fmt: skip


def say_address(report, name, named, mine, using, interfaces):
    """Gloo gives the others the address of GLOO_SOCKET_IFNAME, or what the host name means."""
    asked = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    told = next(iter(interfaces.get(asked, [])), None) or named or mine
    where = next((one for one, has in interfaces.items() if told in has), "no interface known")
    report.say(f"will be {told} ({where}) to the others over gloo")
    if told.startswith("127.") or told == mine:
        return
    if not is_here(told):
        report.bad(f"{name} resolves to {told} here, which is no address of this node",
                   f"have /etc/hosts say '{mine} {name}'")  # fmt: skip
    else:
        report.say(f"better, since the way to the others is {mine}: GLOO_SOCKET_IFNAME={using}")


def matches(variable, asked, interface):
    """Gloo takes names; NCCL the beginning of one, =NAME, or lists and ^exceptions: those pass."""
    if variable.startswith("NCCL") and not asked.startswith("="):
        return interface.startswith(asked) or bool(re.search(r"[\^,]", asked))
    return interface in asked.removeprefix("=").split(",")


def addresses():
    """The IPv4 addresses of each interface that has one."""
    try:
        import fcntl
        import struct
    except ImportError:
        return {}
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # SIOCGIFADDR; the interface may have none
                found[name] = [socket.inet_ntoa(fcntl.ioctl(probe, 0x8915, request)[20:24])]
    return found


def versions():
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def digest(report, file):
    try:
        found = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
        report.say(f"sha256 of {file}: {found}")
        return found
    except OSError as error:
        report.bad(f"{file} cannot be read ({error.strerror})", f"copy {file} to this node")
        return None


def devices(report):
    """How many GPUs; a torch built for CUDA that finds none is a mistake where a driver is."""
    if versions()["torch"] == "not installed":
        report.bad("this Python has no torch", f"{sys.executable} -m pip install torch")
        return 0
    import torch

    found = torch.cuda.device_count()
    if torch.version.cuda and not found and Path("/proc/driver/nvidia").exists():
        report.bad(
            f"torch {torch.__version__} is built for CUDA {torch.version.cuda} but finds no GPU",
            "nvidia-smi says whether the driver works; an older driver needs an older torch",
        )
    built = f" (built for CUDA {torch.version.cuda})" if torch.version.cuda and not found else ""
    report.say(f"{found or 'no'} GPU{'s' * (found != 1)}, torch {torch.__version__}{built}")
    return found


def folder_mark():
    """The same on nodes that share this folder, and only there."""
    facts = os.stat(".")
    return f"{os.getcwd()}:{facts.st_ino}:{int(facts.st_ctime)}"


def receive(options, address, port, facts):
    """On the node of the endpoint: hear what the others know, tell all of them everything."""
    with socket.create_server(("", port)) as server, contextlib.ExitStack() as open_ones:
        others, end = {}, time.monotonic() + options.timeout
        while len(others) < options.nnodes - 1 and (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # a stranger calls
                other, _ = server.accept()
                other.settimeout(10)
                stream = open_ones.enter_context(other.makefile("rw"))
                heard = json.loads(stream.readline())
                heard["skew"] = heard["clock"] - time.time()
                others[heard["address"]] = heard, stream  # a check started again counts once
        everyone = [facts, *(heard for heard, _ in others.values())]
        for _, stream in others.values():
            with contextlib.suppress(OSError):
                stream.write(json.dumps(everyone) + "\n")
                stream.flush()
        return everyone


def send(options, address, port, facts):
    """Elsewhere: tell the node of the endpoint, and wait for what it has heard from all."""
    end = time.monotonic() + options.timeout
    while True:
        try:
            with socket.create_connection((address, port), 5) as other:
                other.settimeout(options.timeout + 15)
                stream = other.makefile("rw")
                stream.write(json.dumps(facts | {"clock": time.time()}) + "\n")
                stream.flush()
                if line := stream.readline():
                    return json.loads(line)
                raise ConnectionError("the node of the endpoint has closed the connection")
        except ValueError:
            raise ConnectionError("what answers there is not this check") from None
        except (ConnectionRefusedError, TimeoutError):
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def why(options, hosting, error):
    host, port = options.endpoint
    if hosting and "in use" in str(error):
        return (
            f"port {port} is taken on this node, perhaps by an earlier job",
            f"end what `ss -ltnp 'sport = :{port}'` shows, or give --endpoint another port",
        )
    if isinstance(error, ConnectionRefusedError):
        return (
            f"{host} is there, but nothing listens on port {port} after {options.timeout:.0f} s",
            f"start this check on {host} too, and give all nodes the same --endpoint",
        )
    return (
        f"no connection to {host}, port {port} ({error})",
        f"see whether {host} is up and whether a firewall lets port {port} through",
    )


def differences(facts, everyone):
    """What only shows side by side, told of the node that has the odd value: `(what, mend)`."""
    first, found = everyone[0], []
    others = [one for one in everyone if one["address"] != facts["address"]]
    if facts["nnodes"] != first["nnodes"]:
        text = f"--nnodes is {facts['nnodes']} here and {first['nnodes']} on {first['name']}"
        found.append((text, f"--nnodes {first['nnodes']}"))
    if facts["name"] in [one["name"] for one in others]:
        text = f"another node is called {facts['name']} too"
        found.append((text, "give each node a name of its own (hostnamectl set-hostname NAME)"))
    rank = facts["node_rank"]
    same = [one["name"] for one in others if one["node_rank"] == rank is not None]
    if same:
        free = sorted(set(range(first["nnodes"])) - {one["node_rank"] for one in everyone})
        text = f"--node-rank {rank} is that of {', '.join(same)} too"
        found.append((text, f"give one of them --node-rank {free[0] if free else 0}"))
    for kind in ("versions", "files"):
        for name, here in facts[kind].items():
            there = first[kind].get(name)
            if here != there and None not in (here, there):
                text = f"{name} is {here} here and {there} on {first['name']}"
                found.append((text, f"bring {name} to the same version on all nodes"))
    for one in others:
        for name in sorted(one["files"].keys() - facts["files"].keys()):
            text = f"{name} is on {one['name']} and not in this folder"
            found.append((text, f"copy {name} to this node, or name the files to compare"))
    if bool(facts["devices"]) != bool(first["devices"]):
        text = f"GPUs: {facts['devices']} here and {first['devices']} on {first['name']}"
        found.append((text, "use nodes that have them, or export CUDA_VISIBLE_DEVICES= on all"))
    if abs(facts.get("skew", 0)) > SKEW:
        text = f"the clock is {facts['skew']:+.0f} s from that of {first['name']}"
        found.append((text, "set the clock (timedatectl set-ntp true)"))
    return found


def compare(report, facts, everyone, options):
    """Tell what differs here. Returns whether all nodes are there and nothing is wrong with any."""
    first = everyone[0]
    facts = next((one for one in everyone if one["address"] == facts["address"]), facts)
    for text, mend in differences(facts, everyone):
        report.bad(text, mend)
    came = sorted(one["name"] for one in everyone)
    missing = first["nnodes"] - len(everyone)
    if missing > 0:
        report.bad(
            f"{len(everyone)} of {first['nnodes']} nodes came in {options.timeout:.0f} s: "
            f"{', '.join(came)}",
            "start this check on the nodes that are missing",
        )
    at_fault = [one["name"] for one in everyone if one["bad"] or differences(one, everyone)]
    if at_fault and not report.mends:
        report.bad(f"something is wrong on {', '.join(at_fault)}", "see what is said there")
    if len(everyone) > 1:
        shared = len({one["folder"] for one in everyone}) == 1
        what = "shared by all nodes" if shared else "this node's own: it needs the scripts too"
        report.say(f"the folder is {what}")
    return not report.mends


def look_up(report, everyone, facts):
    """The names of the others: torchrun tells that of rank 0's node, whichever that will be.

    With its domain, if the node itself knows one.
    """
    for one in everyone:
        if one["address"] == facts["address"]:
            continue
        name = one["told"]
        try:
            found = socket.gethostbyname(name)
        except OSError:
            found = None
        if found is None:
            text = f"{name}, the name of another node, does not resolve here"
        elif found.startswith("127.") or found not in (
            one["address"], one["named"], *one["addresses"]
        ):  # fmt: skip
            text = f"{name} is {found} here, but that node has {', '.join(one['addresses'])}"
        else:
            continue
        report.bad(text, f"have /etc/hosts say '{one['address']} {name}'")


def time_all_reduce(report, everyone, facts, address, port):
    import torch
    import torch.distributed as dist

    rank = [one["address"] for one in everyone].index(facts["address"])
    backend = "nccl" if all(one["devices"] for one in everyone) else "gloo"
    try:
        dist.init_process_group(
            backend, init_method=f"tcp://{address}:{port}", rank=rank, world_size=len(everyone),
            timeout=timedelta(seconds=30),
        )  # fmt: skip
        for size in SIZES:
            tensor = torch.ones(size // 4, device="cuda" if backend == "nccl" else "cpu")
            times = []
            for _ in range(8):
                begun = time.perf_counter()
                dist.all_reduce(tensor)
                tensor[0].item()
                times.append(time.perf_counter() - begun)
            median = statistics.median(times[2:])
            rate = f"{size / median / 1e6:8.1f} MB/s"
            report.say(
                f"all-reduce of {size:>10,} bytes: {median * 1e3:8.2f} ms, {rate}, {backend}"
            )
        dist.destroy_process_group()
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1][:200]
        report.bad(f"no process group forms: {last}", "TORCH_CPP_LOG_LEVEL=INFO says more")


if __name__ == "__main__":
    sys.exit(main())
