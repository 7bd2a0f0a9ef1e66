"""What the log says of the data, of the device's work, and on a terminal."""

import itertools
import os
import pty
import re
import subprocess
import sys
import termios
import threading
import time

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mingpt import flops
from mingpt.metrics import Metrics
from mingpt.model import GPT, GPTConfig
from tests.mingpt.conftest import options
from tests.processes import ROOT


@pytest.mark.parametrize("waits, warned", [(0.02, True), (0, False)])
def test_data_that_are_too_slow_are_told(waits, warned, config, group, capsys):
    def slow():
        while True:
            time.sleep(waits)
            yield None

    model = GPT(GPTConfig.preset("gpt-nano", vocab_size=8, block_size=16))
    metrics = Metrics(config(), model, torch.device("cpu"), 0)
    for _ in itertools.islice(metrics.timed(slow()), 10):
        time.sleep(0.002)
    metrics.trained(9, torch.tensor(1.0))
    out = capsys.readouterr().out
    assert bool(re.search(r"Only \d+% of the time goes into computing.*--cache", out)) == warned
    assert out.count("\n") == 1 + warned


def test_the_work_of_a_token_is_what_its_products_take():
    """But for what the formula adds: 6 for a bias or a gain as well."""
    model = GPT(GPTConfig.preset("gpt-mini", vocab_size=97, block_size=256))
    tokens = torch.zeros(2, 256, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.autocast("cpu", torch.bfloat16):
        model(tokens).float().logsumexp(-1).sum().backward()
    assert counter.get_total_flops() / tokens.numel() == pytest.approx(
        flops.per_token(model), rel=0.01
    )


def test_lines_stand_above_the_bar(text, tmp_path):
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (24, 100))
    words = [sys.executable, "-m", "mingpt.main", *map(str, options(data=text))]
    variables = {
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
        "MASTER_ADDR": "localhost", "MASTER_PORT": "0", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    ran = subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, **variables}, stdout=end, stderr=end
    )
    os.close(end)
    limit = threading.Timer(60, ran.kill)
    limit.start()
    seen = b""
    try:
        while chunk := os.read(terminal, 4096):
            seen += chunk
    except OSError:  # so a terminal ends
        pass
    os.close(terminal)
    status = ran.wait(60)
    limit.cancel()
    assert status == 0, seen.decode()
    assert b"/24 [" in seen  # there was a bar
    lines = seen.decode().replace("\r\n", "\n").split("\n")
    told = [line for line in lines if "checkpoint saved" in line or "loss" in line]
    assert len(told) > 24
    for line in told:
        assert line.split("\r")[-1].startswith("Step"), repr(line)
