"""Where no torchrun has started us, the launcher ends all when one has failed: one must tell."""

import os
import socket
import subprocess
import sys
import time

from tests.processes import ROOT


def test_the_one_that_knows_speaks_before_those_who_lost_it(tmp_path):
    """Rank 1 alone cannot read its checkpoint. As mpirun does, the first to end ends the other."""
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    running = []
    for rank in "01":
        folder = tmp_path / rank
        folder.mkdir()
        if rank == "1":
            (folder / "multinode.pt").write_text("no checkpoint")
        env = {"RANK": rank, "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
        env |= {"MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
        running.append(subprocess.Popen(
            [sys.executable, str(ROOT / "multinode.py"), "2", "1"], cwd=folder,
            env={**os.environ, **env}, stderr=subprocess.PIPE, text=True,
        ))  # fmt: skip
    try:
        end = time.monotonic() + 60
        while all(process.poll() is None for process in running):
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        for process in running:
            process.kill()
    said = "".join(process.communicate()[1] for process in running)
    assert "multinode.py: " in said and "multinode.pt is damaged, or no checkpoint at all" in said
    assert "Traceback" not in said
