"""The port on which the ranks of `multigpu.py` meet: no other program gets it before rank 0."""

import socket
from contextlib import ExitStack, closing

import pytest
import torch.distributed as dist

import utils

pytestmark = pytest.mark.quick


@pytest.fixture
def port(monkeypatch):
    monkeypatch.setattr(utils, "_reserved", None, raising=False)  # given back afterwards
    return utils.free_port()


@pytest.mark.parametrize("address", ["localhost", ""])
def test_another_program_is_refused_it(port, address):
    with closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
        other.bind((address, port))


def test_it_is_not_given_away(port):
    with ExitStack() as stack:
        others = [stack.enter_context(socket.socket()) for _ in range(500)]
        for other in others:
            other.bind(("localhost", 0))
        assert port not in {other.getsockname()[1] for other in others}


def test_nobody_listens_until_rank_0_does(port):
    with closing(socket.socket()) as client:
        assert client.connect_ex(("localhost", port)) != 0
    store = dist.TCPStore("localhost", port, is_master=True)
    client = dist.TCPStore("localhost", port)
    store.set("key", "value")
    assert client.get("key") == b"value"
