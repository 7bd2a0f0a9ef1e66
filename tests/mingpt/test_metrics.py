"""The log: speed, MFU, TensorBoard, files that cannot be written."""

import os
import resource
import time
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from mingpt import flops, metrics
from mingpt.metrics import Metrics
from mingpt.model import GPT, GPTConfig
from tests.mingpt import texts


def loader(device="cpu", seconds=0.0):
    return SimpleNamespace(seconds=seconds, device=torch.device(device))


def test_the_work_of_a_token_is_what_its_products_take():
    """Except that the formula also counts 6 for each bias and gain."""
    model = GPT(GPTConfig.preset("gpt-mini", vocab_size=97, block_size=256))
    tokens = torch.zeros(2, 256, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, torch.autocast("cpu", torch.bfloat16):
        model(tokens).float().logsumexp(-1).sum().backward()
    assert counter.get_total_flops() / tokens.numel() == pytest.approx(
        flops.per_token(model), rel=0.01
    )


@pytest.mark.parametrize("name, precision, teraflops", [
    ("NVIDIA H100 80GB HBM3", "bf16", 989), ("NVIDIA H100 80GB HBM3", "fp32", 67),
    ("NVIDIA A100-SXM4-40GB", "tf32", 156), ("Tesla V100-SXM2-16GB", "fp16", 125),
    ("Tesla V100-SXM2-16GB", "tf32", None), ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", None),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16", None), (None, "fp32", None),
])  # fmt: skip
def test_mfu_is_of_a_known_peak_or_not_told(
    name, precision, teraflops, group, config, capsys, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    args = config(precision=precision)
    model = args.build(8)
    log = Metrics(args, model, loader(device="cuda" if name else "cpu"), 0)
    clock = SimpleNamespace(perf_counter=lambda: log.started + 2.0, time=time.time)
    monkeypatch.setattr(metrics, "time", clock)
    log.trained(9, torch.tensor([1.0, 1.0]))
    out, (line,) = capsys.readouterr().out, texts.log(log.path.parent)
    if teraflops is None:
        assert "MFU" not in out and "mfu" not in line
        return
    done = 5 * args.batch_size * args.block_size * flops.per_token(model)  # in a second
    assert line["mfu"] == pytest.approx(done / (teraflops * 1e12))
    assert f" tokens/s | MFU {line['mfu']:.1%} | computing " in out


def test_the_speed_is_that_of_training(group, config, monkeypatch, tmp_path):
    """The steps since the last line or validation count; the validation's time does not."""
    clock = iter([0, 10, 10, 100, 105, 105])
    monkeypatch.setattr(metrics, "time", SimpleNamespace(perf_counter=clock.__next__, time=float))
    args = config()
    log = Metrics(args, args.build(8), loader(), 0)
    log.trained(9, torch.tensor([1.0, 1.0]))
    log.validated(14, torch.tensor([1.0, 1.0]))
    log.trained(19, torch.tensor([1.0, 1.0]))
    speeds = texts.curve(tmp_path, "tokens_per_second")
    assert set(speeds.values()) == {args.batch_size * args.block_size}


def test_tensorboard_has_what_the_log_has(group, config, capsys, tmp_path):
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="no tensorboard: --tensorboard needs it",
    )
    args = config(tensorboard=str(tmp_path / "board"))
    log = Metrics(args, args.build(8), loader(), 0)
    log.validated(14, torch.tensor([3.0, 2.0]))
    log.trained(19, torch.tensor([1.0, 1.0]))
    told = events.EventAccumulator(args.tensorboard)
    told.Reload()
    found = {name: told.Scalars(name) for name in told.Tags()["scalars"]}
    assert set(found) == {"val_loss", "train_loss", "tokens_per_second", "computing"}
    assert [(event.step, event.value) for event in found["val_loss"]] == [(15, 1.5)]
    log.board.flush = lambda: os.listdir(__file__)  # always fails, but the run continues
    log.validated(24, torch.tensor([3.0, 2.0]))
    assert "the log cannot be written (Not a directory)" in capsys.readouterr().out
    log.board.close()  # before pytest deletes the folder that its thread writes to


def test_a_log_that_cannot_be_written_ends_nothing(group, config, capsys):
    """A limit on file sizes plays the full disk."""
    args = config()
    log = Metrics(args, args.build(8), loader(), 3)
    loss = torch.tensor([3.0, 2.0])
    log.validated(3, loss)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.path.stat().st_size + 10, hard))
    try:
        log.validated(4, loss)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr().out
    assert "This line is not kept, the log cannot be written (No space left on device)" in said
    log.validated(5, loss)
    assert [line["step"] for line in texts.log(log.path.parent)] == [4, 6]
