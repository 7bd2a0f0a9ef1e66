"""A free port, for `multigpu.py`'s ranks and for the tools: no other program takes it first."""

import socket
from contextlib import closing

import pytest
import torch.distributed as dist

import utils
from tools import processes

pytestmark = pytest.mark.quick


@pytest.fixture(params=[utils, processes], ids=["utils", "tools"])
def port(request, monkeypatch):
    monkeypatch.setattr(utils, "_reserved", None, raising=False)  # pytest restores it
    return request.param.free_port()


@pytest.mark.parametrize("address", ["localhost", ""])
def test_another_program_is_refused_it(port, address):
    with closing(socket.socket()) as other, pytest.raises(OSError, match="in use"):
        other.bind((address, port))


def test_nobody_listens_until_rank_0_does(port):
    with closing(socket.socket()) as client:
        assert client.connect_ex(("localhost", port)) != 0
    store = dist.TCPStore("localhost", port, is_master=True)
    client = dist.TCPStore("localhost", port)
    store.set("key", "value")
    assert client.get("key") == b"value"
