"""Stop, with one line, where torchrun would hang silently. The recipes run this first.

    python3 launch/before.py node1:29500              (or, where nodes are numbered)
    python3 launch/before.py node1:29500 NODE_RANK

It finds wrong values of the recipes' variables, a host name without an address, a missing
interface, and an endpoint where something listens but does not answer. If the endpoint is an
address of this node, it prints "is_host=1".
"""

import contextlib
import os
import re
import socket
import sys
import threading
from datetime import timedelta

VARIABLES = {  # what each may be, if it is set
    "NNODES": ("[1-9][0-9]*(:[1-9][0-9]*)?", "a number from 1, or two of them, as 1:2"),
    "NPROC": ("[1-9][0-9]*|auto|cpu|gpu|xpu", "a number from 1, or auto, cpu, gpu or xpu"),
    "MAX_RESTARTS": ("[0-9]+", "a number from 0"),
    "JOIN_TIMEOUT": ("[1-9][0-9]*", "a number of seconds from 1"),
    "JOB": ("[^/]+", "a name without /, because torchrun makes a folder of it"),
}
LOOPBACK = "/etc/hosts must say '127.0.0.1 localhost', and `ip link set lo up` helps if lo is down"


def main(endpoint, rank=None):
    for name, (pattern, wanted) in VARIABLES.items():
        text = os.environ.get(name)
        if text and not re.fullmatch(pattern, text):
            refuse(f"{name} is {text!r}, but must be {wanted}")
    least, _, most = os.environ.get("NNODES", "1").rpartition(":")
    if least and int(least) > int(most):
        refuse(f"NNODES is {least}:{most}, but the first number must not be above the second")
    if rank and not (re.fullmatch("[0-9]+", rank) and int(rank) < int(most)):
        refuse(f"NODE_RANK is {rank!r}, but must be a number from 0 and below NNODES, {most}")
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    if not is_name(host) or not re.fullmatch("[1-9][0-9]{0,4}", port) or int(port) > 65535:
        refuse(f"the endpoint is {endpoint!r}, but must be a host and a port, as node1:29500")
    there = [name for _, name in socket.if_nameindex()]
    for name in filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")):
        if name not in there:
            # The workers here would fail, and those of other nodes wait for them half an hour.
            refuse(
                f"GLOO_SOCKET_IFNAME is {name}, but {socket.gethostname()} has only "
                f"{', '.join(there)}: name one of these, or unset it"
            )
    text = f"waiting for {endpoint}: a name server is slow, or what listens there does not answer"
    slow = threading.Timer(5, print, (text,), {"file": sys.stderr, "flush": True})
    slow.daemon = True
    slow.start()
    if rank is None and not os.environ.get("PET_LOCAL_ADDR"):
        check_own_name(socket.getfqdn())  # which torchrun would give to all workers
    here = host == "localhost" or host.startswith("127.")
    try:
        socket.create_connection((host, int(port)), 5).close()
        ask(host, int(port))
    except ConnectionRefusedError:  # nothing listens yet: torchrun waits for it, with a limit
        pass
    except OSError as error:
        if here:
            refuse(f"{host} does not work here ({error.strerror}): {LOOPBACK}")
        if isinstance(error, socket.gaierror):  # a pod's name may come late
            print(f"{host} has no address here yet: torchrun will ask again", file=sys.stderr)
    slow.cancel()
    # torchrun recognizes its own node only by the host name. Only on that node can a server listen
    # at the address. (At localhost, for several agents on one machine, the first one hosts.)
    if not here:
        with contextlib.suppress(OSError):
            socket.create_server((host, 0)).close()
            print("is_host=1")


def is_name(host):
    """Whether a resolver can be asked for it: not for a..b, nor for 64 letters without a dot."""
    with contextlib.suppress(UnicodeError):
        return bool(host.encode("idna"))
    return False


def check_own_name(name):
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        refuse(
            f"the host name {name} does not resolve on {name} itself ({error.strerror}): have "
            f"/etc/hosts say 'ADDRESS {name}', or export PET_LOCAL_ADDR=ADDRESS; ADDRESS is "
            "127.0.0.1 if this is the only node"
        )


def refuse(text):
    print(text, file=sys.stderr, flush=True)
    sys.exit(2)


def patience():
    """How long to wait for an answer, in seconds."""
    return min(30, int(os.environ.get("JOIN_TIMEOUT") or 30))


def ask(host, port):
    """Connect as torchrun will. Our own timer bounds the wait, because TCPStore does not."""
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # or it logs every attempt
    from torch.distributed import TCPStore

    limit = threading.Timer(patience(), give_up, (f"{host}:{port}",))
    limit.daemon = True
    limit.start()
    with contextlib.suppress(RuntimeError):  # a wrong answer, or none: torchrun reports that
        TCPStore(host, port, timeout=timedelta(seconds=5), wait_for_workers=False)
    limit.cancel()


def give_up(endpoint):
    text = f"something listens at {endpoint}, but is no torchrun, or it is frozen: it has not "
    text += f"answered for {patience()} seconds. End it, or choose another port"
    print(text, file=sys.stderr, flush=True)
    os._exit(1)  # the main thread waits in C++


if __name__ == "__main__":
    main(*sys.argv[1:3] or [""])
