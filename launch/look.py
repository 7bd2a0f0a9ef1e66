"""What would keep torchrun waiting in vain, found before it starts.

    python3 launch/look.py node1:29500

An interface that is not there, and an endpoint at which something listens that is no torchrun: both
end here, with a line and status 1. If not, and the endpoint is on this node, prints "is_host=1".
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
    there = [name for _, name in socket.if_nameindex()]
    for name in filter(None, os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")):
        if name not in there:
            # Its workers would end. Those of other nodes would wait for them, for half an hour.
            sys.exit(
                f"GLOO_SOCKET_IFNAME is {name}, but {socket.gethostname()} has only "
                f"{', '.join(there)}: name one of these, or unset it"
            )
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        pass  # nobody is there yet: torchrun tries again, and says so in the end
    else:
        # Without this, torchrun would wait for an answer for ever.
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


def ask(host, port):
    """Return as soon as something has answered, whatever it was: torchrun knows what to say."""
    from torch.distributed import TCPStore  # a second, which only those spend who come late

    with contextlib.suppress(RuntimeError):
        TCPStore(host, port, timeout=timedelta(seconds=PATIENCE), wait_for_workers=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
