"""Stop, with one line, where torchrun would hang silently. The recipes run this first.

    python3 launch/before.py node1:29500

It finds a missing interface, and an endpoint where something listens but does not answer. If the
endpoint is an address of this node, it prints "is_host=1".
"""

import contextlib
import os
import socket
import sys
import threading
from datetime import timedelta

PATIENCE = min(30, int(os.environ.get("JOIN_TIMEOUT") or 30))  # seconds


def main(endpoint):
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        sys.exit(f"the endpoint is {endpoint!r}, but must be a host and a port, as node1:29500")
    there = [name for _, name in socket.if_nameindex()]
    for name in filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")):
        if name not in there:
            # The workers here would fail, and those of other nodes wait for them half an hour.
            sys.exit(
                f"GLOO_SOCKET_IFNAME is {name}, but {socket.gethostname()} has only "
                f"{', '.join(there)}: name one of these, or unset it"
            )
    with contextlib.suppress(OSError):  # nothing listens yet: torchrun waits for it, with a limit
        socket.create_connection((host, int(port)), 5).close()
        ask(host, int(port))
    # torchrun recognizes its own node only by the host name. Only on that node can a server listen
    # at the address. (At localhost, for several agents on one machine, the first one hosts.)
    if host != "localhost" and not host.startswith("127."):
        with contextlib.suppress(OSError):
            socket.create_server((host, 0)).close()
            print("is_host=1")


def ask(host, port):
    """Connect as torchrun will. Our own timer bounds the wait, because TCPStore does not."""
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # or it logs every attempt
    from torch.distributed import TCPStore

    limit = threading.Timer(PATIENCE, give_up, (f"{host}:{port}",))
    limit.daemon = True
    limit.start()
    with contextlib.suppress(RuntimeError):  # a wrong answer, or none: torchrun reports that
        TCPStore(host, port, timeout=timedelta(seconds=5), wait_for_workers=False)
    limit.cancel()


def give_up(endpoint):
    text = f"something listens at {endpoint}, but is no torchrun, or it is frozen: it has not "
    text += f"answered for {PATIENCE} seconds. End it, or choose another port"
    print(text, file=sys.stderr, flush=True)
    os._exit(1)  # the main thread waits in C++


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
