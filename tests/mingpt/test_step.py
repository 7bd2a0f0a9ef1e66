"""One step of the trainer: precision, accumulation, clipping. Validation drops no sample."""

import os
import signal

import numpy as np
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

from mingpt import data, trainer
from mingpt.config import Config
from tests.worlds import world


@pytest.fixture
def made(group, config):
    """Make a Trainer whose optimizer shows the gradient's length, unlike AdamW."""
    before = signal.getsignal(signal.SIGTERM)

    def make(**others):
        args = config(**others)
        dataset, model, _ = trainer.load_train_objs(args)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        return trainer.Trainer(model, trainer.prepare_dataloader(dataset, args), optimizer, args)

    yield make
    signal.signal(signal.SIGTERM, before)


def moved(it):
    """How one step moves the weights, as a vector; the learning rate is 1."""
    flat = torch.nn.utils.parameters_to_vector
    before = flat(it.model.parameters()).detach().clone()
    it._run_step(0)
    return flat(it.model.parameters()).detach() - before


def test_a_gradient_is_clipped_to_its_bound(made):
    assert moved(made(dropout=0.0, grad_clip=0.01)).norm() == pytest.approx(0.01, rel=1e-3)
    far = moved(made(dropout=0.0, grad_clip=1e6)).norm()
    assert moved(made(dropout=0.0, grad_clip=float(2 * far))).norm() == pytest.approx(float(far))


@pytest.mark.parametrize("precision, error", [("bf16", 0.05), ("fp16", 0.01)])
def test_half_precision_moves_the_weights_like_full(precision, error, made):
    full, half = (moved(made(dropout=0.0, precision=kind)) for kind in ("fp32", precision))
    assert 0 < (half - full).norm() < error * full.norm()


def test_accumulation_moves_the_weights_like_one_batch(made):
    whole, parts = (
        moved(made(dropout=0.0, micro_batch_size=size, grad_clip=1e6)) for size in (8, 2)
    )
    assert (parts - whole).norm() < 1e-5 * whole.norm()


def test_only_the_last_micro_batch_reduces(made):
    it, calls = made(dropout=0.0, micro_batch_size=2), []
    it.model.register_comm_hook(None, lambda _, bucket: count(calls, bucket))
    it._run_step(0)
    once = len(calls)
    assert sum(calls) == sum(p.numel() for p in it.model.parameters())
    it._run_step(1)
    assert len(calls) == 2 * once


@torch._dynamo.config.patch(optimize_ddp=True)  # so that it is as before afterwards
def test_the_graph_is_cut_only_where_sending_overlaps(made, config, monkeypatch):
    torch._dynamo.reset()  # another test's shapes would make these dynamic, in more graphs
    graphs = []

    def compile(model):
        torch.nn.Module.compile(model, backend=lambda graph, _: graphs.append(graph) or graph)

    monkeypatch.setattr(DDP, "compile", compile)
    made(compile=True, n_layer=2, n_embd=768)._run_step(0)  # three buckets
    assert len(graphs) == 1

    def is_cut(micro_batch_size):
        args = config(compile=True, micro_batch_size=micro_batch_size)
        dataset, model, optimizer = trainer.load_train_objs(args)
        loader = trainer.prepare_dataloader(dataset, args)
        trainer.Trainer(model, loader, optimizer, args)
        return torch._dynamo.config.optimize_ddp

    assert world(2, lambda rank: [is_cut(size) for size in (4, 2)]) == [[True, False]] * 2


def test_deterministic_is_set_before_the_model_is_built(group, config, monkeypatch):
    seen, build = [], Config.build
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)

    def note(*args):
        seen.append(torch.are_deterministic_algorithms_enabled())
        seen.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
        return build(*args)

    monkeypatch.setattr(Config, "build", note)
    try:
        for deterministic in (False, True):
            trainer.load_train_objs(config(deterministic=deterministic))
    finally:
        torch.use_deterministic_algorithms(False)
        os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    assert seen == [False, None, True, ":4096:8"]


def count(calls, bucket):
    calls.append(bucket.buffer().numel())
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def test_validation_drops_nothing_and_leaves_no_trace(made):
    it, seen = made(dropout=0.5), []
    it.metrics.validated = lambda step, totals: seen.append(totals.tolist())
    state = torch.get_rng_state()
    it._validate(0)
    it._validate(0)
    assert seen[0] == seen[1]
    assert it.model.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in it.model.parameters())


def test_the_learning_rate_rises_and_falls(made):
    it = made(learning_rate=1.0, min_learning_rate=0.1, warmup_steps=4, total_steps=24)
    rates = [it._learning_rate(step) for step in range(25)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0 and rates[14] == pytest.approx(0.55) and rates[24] == pytest.approx(0.1)
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_what_a_step_learns_from_depends_on_seed_and_step_alone(group, config):
    args = config(batch_size=8)
    dataset = data.load(args)

    dataset.at = lambda places: (torch.tensor(places), None)  # where the windows start

    def starts(step, rank=0, world_size=1, **others):
        loader = data.StepLoader(dataset, config(batch_size=8, **others))
        loader.rank, loader.world_size = rank, world_size
        loader.accumulation = args.accumulation(world_size)
        return [place for places, _ in loader[step] for place in places.tolist()]

    one = starts(3)
    assert starts(3) == one and starts(4) != one and starts(3, seed=1) != one
    shares = [starts(3, rank, 4) for rank in range(4)]
    assert sorted(place for share in shares for place in share) == sorted(one)
    many = [place for step in range(3000) for place in starts(step)]
    assert min(many) == 0 and max(many) == len(dataset.numbers) - dataset.size - 1


def test_targets_are_one_token_ahead_and_no_training_text_is_validated_on(group, config, text):
    dataset = data.load(config())
    source, targets = dataset.at(np.array([5, 90]))
    assert torch.equal(source[:, 1:], targets[:, :-1])
    for one, of_both in zip(dataset[1], dataset[np.array([1, 2])], strict=True):  # side by side
        assert torch.equal(one, of_both[0])
    assert dataset[1][0][0] == dataset.numbers[16] == dataset[0][1][-1]
    assert (dataset[len(dataset) - 1][1] != data.PADDING).sum() == (len(dataset.numbers) - 1) % 16
    vocabulary = dataset.about["vocabulary"]
    letters = "".join(vocabulary[token] for token in dataset.numbers)
    others = "".join(vocabulary[token] for token in dataset.val.numbers)
    assert letters + others == text.read_text()
    assert len(others) == len(text.read_text()) // 10
