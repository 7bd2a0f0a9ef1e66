"""Delay packets between two network interfaces, both ways.

python late.py to-node1 near-node1 0.005
"""

import collections
import contextlib
import os
import select
import socket
import sys
import time

ALL, PACKET, HEADER, ONLY_INCOMING = 3, 263, 15, 23  # from Linux's if_ether.h and if_packet.h
ROOM = 16 << 20  # bytes that may wait to be read
AT_ONCE = 32  # packets to read before others are sent


def main(one, other, seconds):
    ends = [_listen(one), _listen(other)]
    to = dict(zip(ends, reversed(ends), strict=True))
    due = collections.deque()  # (when, to which end, packet): all wait equally long, so in order
    poll = select.poll()
    for end in (*ends, sys.stdin):
        poll.register(end, select.POLLIN)
    with contextlib.suppress(OSError):  # a network does not wait for a free core
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    by_number = {end.fileno(): end for end in ends}
    print("ready", flush=True)
    while True:
        wait = max(0, due[0][0] - time.monotonic()) * 1e3 if due else None
        for number, _ in poll.poll(wait):
            if number not in by_number:
                return  # the input ends: so does the delay
            with contextlib.suppress(OSError):  # the interface is down
                for _ in range(AT_ONCE):
                    packet = by_number[number].recv(1 << 17, socket.MSG_DONTWAIT)
                    due.append((time.monotonic() + seconds, to[by_number[number]], packet))
        while due and due[0][0] <= time.monotonic():
            _, end, packet = due.popleft()
            with contextlib.suppress(OSError):
                end.send(packet)


def _listen(interface):
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    end.setsockopt(PACKET, HEADER, 1)  # packets stay large, and their checksums unfinished
    end.setsockopt(PACKET, ONLY_INCOMING, 1)
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, 33, ROOM)  # SO_RCVBUFFORCE
        end.setsockopt(socket.SOL_SOCKET, 32, ROOM)  # SO_SNDBUFFORCE
    end.bind((interface, 0))
    return end


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
