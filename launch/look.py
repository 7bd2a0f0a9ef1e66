"""What would keep torchrun waiting in vain, found before it starts.

    python3 launch/look.py node1:29500

An interface that is not there, and an endpoint at which something listens that is no torchrun: both
end here, with a line and status 1. If not, and the endpoint is on this node, prints "is_host=1".
"""

import contextlib
import os
import socket
import struct
import sys
import threading
from datetime import timedelta

# What a client of torch's store says first, a number to come back behind it.
PING = struct.pack("=BIBI", 0, 0x3C85F7CE, 13, 0)
PATIENCE = min(30, int(os.environ.get("JOIN_TIMEOUT") or 30))  # seconds


def main(endpoint):
    host, _, port = endpoint.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        sys.exit(f"the endpoint is {endpoint!r}, but must be a host and a port, as node1:29500")
    there = [name for _, name in socket.if_nameindex()]
    for name in filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")):
        if name not in there:
            # Its workers would end. Those of other nodes would wait for them, for half an hour.
            sys.exit(
                f"GLOO_SOCKET_IFNAME is {name}, but {socket.gethostname()} has only "
                f"{', '.join(there)}: name one of these, or unset it"
            )
    if listens_in_silence(host, int(port)):
        # A version of torch that says it otherwise? Torch itself asks, which takes a second more.
        # In a thread: it would wait for an answer for ever, as torchrun would.
        asking = threading.Thread(target=ask, args=(host, int(port)), daemon=True)
        asking.start()
        asking.join(PATIENCE)
        if asking.is_alive():
            print(
                f"something listens at {endpoint}, but is no torchrun, or it is frozen: it has not "
                f"answered for {PATIENCE} seconds. End it, or choose another port",
                file=sys.stderr,
            )
            os._exit(1)  # the thread cannot be interrupted
    # torchrun knows its node by the host name only. Whether an address is this node's shows when
    # something listens there. (At localhost, for several agents on one machine, the first hosts.)
    if host != "localhost" and not host.startswith("127."):
        try:
            socket.create_server((host, 0)).close()
        except OSError:
            return
        print("is_host=1")


def listens_in_silence(host, port):
    """Not so if nobody is there yet, or who is there says anything: torchrun copes with both."""
    try:
        connection = socket.create_connection((host, port), 5)
    except OSError:
        return False
    with connection:
        connection.settimeout(2)
        try:
            connection.sendall(PING)
            connection.recv(1)
        except TimeoutError:
            return True
        except OSError:
            pass
    return False


def ask(host, port):
    """Return as soon as something has answered, whatever it was."""
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"  # or it tells of each attempt
    from torch.distributed import TCPStore

    with contextlib.suppress(RuntimeError):
        TCPStore(host, port, timeout=timedelta(seconds=PATIENCE), wait_for_workers=False)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
