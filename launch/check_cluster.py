"""Will this cluster train? Run it on every node, before the first job; it needs no launcher.

    python launch/check_cluster.py --endpoint node1:29500

The node that the endpoint names waits for the others. Then each node says what is wrong with it,
and which command or variable fixes that. Versions are compared, and the scripts in this folder, or
the files you name. If all is well, the nodes time an all-reduce. Status 0 if this node is fine.
"""

import argparse
import contextlib
import hashlib
import json
import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path


class Report:
    """The lines that this node prints. The verdict is the first fix."""

    def __init__(self, name):
        self.name, self.fixes = name, []

    def say(self, text):
        print(f"{self.name}: {text}", flush=True)

    def bad(self, text, fix):
        self.say(f"BAD  {text}")
        self.fixes.append(fix)

    def verdict(self):
        self.say(f"VERDICT: not ready; {self.fixes[0]}" if self.fixes else "VERDICT: ready")
        return bool(self.fixes)


def main():
    options = parse()
    report = Report(socket.gethostname())
    try:
        address = socket.gethostbyname(options.endpoint[0]), options.endpoint[1]
        facts = look_at_this_node(report, options, address)
        report.say(f"nodes that meet: {options.nnodes}, in at most {options.timeout} s")
        everyone = (receive if is_here(address[0]) else send)(options, address, facts)
    except OSError as error:
        report.bad(*why(options, error))
    else:
        if compare(report, facts, everyone, options):
            time_all_reduce(report, everyone, facts, address)
        look_up(report, everyone, facts)
    return report.verdict()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.error = lambda text: parser.exit(2, f"{parser.prog}: {text} (--help says more)\n")
    parser.add_argument("--endpoint", required=True, metavar="HOST:PORT", type=endpoint,
                        help="as you will give it to --rdzv-endpoint")  # fmt: skip
    parser.add_argument("--nnodes", type=number, default=2, help="default: 2")
    parser.add_argument("--timeout", type=number, default=60, help="seconds to wait for the others")
    parser.add_argument("files", nargs="*", default=sorted(map(str, Path().glob("*.py"))),
                        help="files that must be the same on all nodes; default: *.py")  # fmt: skip
    return parser.parse_args()


def number(text, most=999_999):
    if not text.isdecimal() or not 1 <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {most}")
    return int(text)


def endpoint(text):
    host, _, port = text.rpartition(":")
    with contextlib.suppress(UnicodeError):  # such as a..b
        if host.encode("idna"):
            return host, number(port, 65535)
    raise argparse.ArgumentTypeError(f"{text!r} is no host and port, as node1:29500")


def is_here(address):
    """Whether it is an address of this machine: a server can only listen at those."""
    with contextlib.suppress(OSError):
        socket.create_server((address, 0)).close()
        return True
    return False


def look_at_this_node(report, options, address):
    interfaces = addresses()
    alone = options.nnodes == 1
    mine = own_address(address, {} if alone else interfaces)
    named = check_address(report, mine, interfaces, alone)
    same = {"--nnodes": options.nnodes, "python": sys.version.split()[0], **check_torch(report)}
    for file in options.files:
        try:
            same[file] = hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]
        except OSError as error:
            report.bad(f"{file} cannot be read ({error.strerror})", f"copy {file} to this node")
    return {
        "name": report.name, "full_name": socket.getfqdn(), "address": mine,
        "addresses": [*interfaces.values(), named], "same": same, "clock": time.time(),
        "bad": len(report.fixes),
    }  # fmt: skip


def resolve(name):
    with contextlib.suppress(OSError):
        return socket.gethostbyname(name)


def addresses():
    """The IPv4 address of each interface that has one; empty if this is not Linux."""
    import fcntl

    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # SIOCGIFADDR
                answer = fcntl.ioctl(probe, 0x8915, name.encode()[:15].ljust(256, b"\0"))
                found[name] = socket.inet_ntoa(answer[20:24])
    return found


def own_address(address, interfaces):
    """The address that this node would use to reach the endpoint; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        found = probe.getsockname()[0]
    others = (one for one in (found, *interfaces.values()) if not one.startswith("127."))
    return next(others, found)  # Debian's /etc/hosts calls the endpoint's own node 127.0.1.1


def check_address(report, mine, interfaces, alone=False):
    """Gloo announces the address of GLOO_SOCKET_IFNAME, or else what the host name resolves to."""
    name = os.environ.get("PET_LOCAL_ADDR") or socket.getfqdn() if alone else report.name
    way = next((one for one, has in interfaces.items() if has == mine), "")
    fix = f"have /etc/hosts say '{mine} {name}'" + f", or export PET_LOCAL_ADDR={mine}" * alone
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        asked = os.environ.get(variable, "")  # names; for NCCL also prefixes, or =NAME
        fits = any(way.startswith(one) for one in asked.removeprefix("=").split(","))
        if way and not fits and "^" not in asked and not alone:
            text = f"{variable} is {asked}, but of {', '.join(interfaces)} only {way} leads there"
            report.bad(text, f"export {variable}={way}")
    if not (named := resolve(name)):
        return report.bad(f"{name}, its own name, does not resolve here: torchrun would hang", fix)
    told = interfaces.get(os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0], named)
    if not alone:
        report.say(f"gloo will give the others the address {told}; the way is {mine} ({way})")
    if (told.startswith("127.") and not alone) or not is_here(told):
        text = f"{name} resolves to {told} here, and the others cannot reach that address"
        report.bad(text, fix if alone else f"export GLOO_SOCKET_IFNAME={way}, or {fix}")
    return named


def check_torch(report):
    """Its version and backend. If there is a driver, a torch built for CUDA must find a GPU."""
    try:
        import torch
    except ImportError:
        report.bad("this Python has no torch", f"{sys.executable} -m pip install torch")
        return {}
    found, cuda = torch.cuda.device_count(), torch.version.cuda
    built = f"torch {torch.__version__}" + f" (built for CUDA {cuda})" * bool(cuda)
    report.say(f"{found or 'no'} GPU{'s' * (found != 1)}, {built}")
    if cuda and not found and Path("/proc/driver/nvidia").exists():
        report.bad(f"{built} finds no GPU", "try nvidia-smi; an older driver needs an older torch")
    return {"torch": torch.__version__, "backend": "nccl" if found else "gloo"}


def receive(options, address, facts):
    """On the node of the endpoint: collect the facts of all nodes, and send them to each."""
    others, end = {}, time.monotonic() + options.timeout
    with socket.create_server(("", address[1])) as server:
        while len(others) < options.nnodes - 1 and (left := end - time.monotonic()) > 0:
            server.settimeout(left)
            with contextlib.suppress(OSError, ValueError, TypeError, KeyError):  # some other client
                other, _ = server.accept()
                other.settimeout(10)
                stream = other.makefile("rw")
                heard = json.loads(stream.readline())
                heard["skew"] = heard["clock"] - time.time()
                others[heard["address"]] = heard, stream  # a restarted check counts once
        everyone = [facts, *(heard for heard, _ in others.values())]
        for _, stream in others.values():
            with contextlib.suppress(OSError):
                print(json.dumps(everyone), file=stream, flush=True)
        return everyone


def send(options, address, facts):
    """Elsewhere: send this node's facts to the endpoint, and wait for those of all nodes."""
    end = time.monotonic() + options.timeout
    while True:
        try:
            with socket.create_connection(address, 5) as other:
                other.settimeout(options.timeout + 15)
                stream = other.makefile("rw")
                print(json.dumps(facts | {"clock": time.time()}), file=stream, flush=True)
                return json.loads(stream.readline())
        except ValueError:
            raise ConnectionError("what answers there is not this check") from None
        except (ConnectionRefusedError, TimeoutError):
            if time.monotonic() > end:
                raise
            time.sleep(0.3)


def why(options, error):
    """Why the nodes did not meet at the endpoint, and what fixes it."""
    host, port = options.endpoint
    if isinstance(error, socket.gaierror):
        text = f"the name {host} does not resolve here ({error.strerror})"
        return text, f"have /etc/hosts say 'ADDRESS {host}', for localhost '127.0.0.1 localhost'"
    if "in use" in str(error):
        text = f"port {port} is taken on this node, perhaps by an earlier job"
        return text, f"end what `ss -ltnp 'sport = :{port}'` shows, or choose another port"
    if isinstance(error, ConnectionRefusedError):
        text = f"{host} is there, but nothing listens on port {port} after {options.timeout} s"
        return text, f"start this check on {host} too, and give all nodes the same --endpoint"
    fix = f"see whether {host} is up (localhost: ip link set lo up) and port {port} not closed"
    return f"no connection to {host}, port {port} ({error})", fix


def differences(facts, everyone):
    """Where this node differs from the others, each `(what, fix)`."""
    first, found = everyone[0], []
    if [one["name"] for one in everyone].count(facts["name"]) > 1:
        text = f"another node is called {facts['name']} too"
        found.append((text, "give each node its own name (hostnamectl set-hostname NAME)"))
    for name, here in facts["same"].items():
        there = first["same"].get(name, here)
        if here != there:
            text = f"{name} is {here} here and {there} on {first['name']}"
            found.append((text, f"make {name} the same on all nodes"))
    for name in sorted({name for one in everyone for name in one["same"]} - facts["same"].keys()):
        text = f"{name} is on another node and not in this folder"
        found.append((text, f"copy {name} to this node, or name the files to compare"))
    if abs(facts.get("skew", 0)) > 2:  # torchrun gives up a node that is 4 s behind
        text = f"the clock is {facts['skew']:+.0f} s from that of {first['name']}"
        found.append((text, "set the clock (timedatectl set-ntp true)"))
    return found


def compare(report, facts, everyone, options):
    """Report what differs here. Returns whether all nodes came and none has a problem."""
    facts = next((one for one in everyone if one["address"] == facts["address"]), facts)
    for text, fix in differences(facts, everyone):
        report.bad(text, fix)
    nnodes = everyone[0]["same"]["--nnodes"]
    if len(everyone) < nnodes:
        came = ", ".join(sorted(one["name"] for one in everyone))
        text = f"{len(everyone)} of {nnodes} nodes came in {options.timeout} s: {came}"
        report.bad(text, "start this check on the nodes that are missing")
    at_fault = [one["name"] for one in everyone if one["bad"] or differences(one, everyone)]
    if at_fault and not report.fixes:
        report.bad(f"something is wrong on {', '.join(at_fault)}", "see what it prints there")
    return not report.fixes


def look_up(report, everyone, facts):
    """Look up the others' full names, because torchrun announces rank 0's, and any may host it."""
    for one in everyone:
        name, known = one["full_name"], one["addresses"]
        found = resolve(name) or "unknown"
        wrong = found.startswith("127.") or found not in known
        if wrong and one["address"] != facts["address"]:
            text = f"{name} is {found} here, but that node has {', '.join(filter(None, known))}"
            report.bad(text, f"have /etc/hosts say '{one['address']} {name}'")


def time_all_reduce(report, everyone, facts, address):
    import torch
    import torch.distributed as dist

    backend = facts["same"]["backend"]
    try:
        dist.init_process_group(
            backend, init_method="tcp://{}:{}".format(*address), world_size=len(everyone),
            rank=[one["address"] for one in everyone].index(facts["address"]),
            timeout=timedelta(seconds=30),
        )  # fmt: skip
        tensor = torch.ones(1 << 22, device="cuda" if backend == "nccl" else "cpu")
        for _ in range(5):  # the first ones open connections
            begun = time.perf_counter()
            dist.all_reduce(tensor)
            tensor[0].item()
            ms = (time.perf_counter() - begun) * 1e3
        rate = f"{ms:.1f} ms, {tensor.nbytes / ms / 1e3:.1f} MB/s" if everyone[1:] else "done"
        report.say(f"all-reduce of {tensor.nbytes:,} bytes over {backend}: {rate}")
        dist.destroy_process_group()
    except RuntimeError as error:
        last = str(error).strip().splitlines()[-1][:200]
        report.bad(f"no process group forms: {last}", "TORCH_CPP_LOG_LEVEL=INFO says more")


if __name__ == "__main__":
    sys.exit(main())
