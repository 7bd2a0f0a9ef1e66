"""Defects of correct_trainer.py, each with its rule: what to replace, and the line to name."""

from dataclasses import dataclass
from pathlib import Path

CORRECT = (Path(__file__).parent / "correct_trainer.py").read_text(encoding="utf-8")
LAST = "            save(model, optimizer, schedule, epoch + 1)\n"  # of train()


@dataclass(frozen=True)
class Case:
    """`at` is a part of the line that the finding must name; None if it names no line."""

    rule: str
    old: str
    new: str
    at: str | None
    also: tuple[str, ...] = ()  # errors and warnings that follow from it


CASES = [
    Case("same-batches", "sampler=sampler)", "shuffle=False)", "loader = DataLoader(training"),
    Case("not-shared", "sampler=sampler)", "shuffle=True)", "loader = DataLoader(training"),
    Case(
        "same-noise",
        "        for tokens, targets in loader:\n            optimizer.zero_grad()\n"
        "            _, loss = model(tokens, targets)\n",
        "        same = torch.Generator().manual_seed(epoch)\n"
        "        for tokens, targets in loader:\n            optimizer.zero_grad()\n"
        "            noise = torch.randint(VOCABULARY, tokens.shape, generator=same)\n"
        "            _, loss = model(tokens, targets)\n"
        "            loss = loss + model(noise, noise)[1]\n",
        "model(noise, noise)",
    ),
    Case("every-epoch-alike", "        sampler.set_epoch(epoch)\n", "", "in loader:"),
    Case(
        "sampler-of-another-rank", "DistributedSampler(training)",
        "DistributedSampler(training, num_replicas=4, rank=rank)", "loader = DataLoader(training",
    ),
    Case(
        "split-differs", "[64, 16], torch.Generator().manual_seed(2))", "[64, 16])",
        "random_split(dataset", ("leak",),
    ),
    Case("leak", "Subset(held, range(", "Subset(dataset, range(", "held_loader = DataLoader("),
    Case("diverged", "_, loss = model(tokens", "_, loss = model.module(tokens", "model.module("),
    Case(  # no call of a module: only those inside it are called
        "diverged", "_, loss = model(tokens", "_, loss = model.module.forward(tokens", "forward(",
    ),
    Case(
        "diverged", "    model = DDP(Model())",
        "    model = Model()\n    object.__setattr__(model, 'module', model)", "step()",
    ),
    Case("learns-nothing", "loss.backward()", "(0 * loss).backward()", "(0 * loss)"),
    Case(
        "learns-nothing", "optimizer.step()", "optimizer.zero_grad(); optimizer.step()",
        "backward()",
    ),
    Case("nan", "loss.backward()", "(loss / 0).backward()", "optimizer.step()"),
    Case("not-causal", "dtype=torch.bool), 1)", "), 1)", "model(tokens, targets)"),
    Case("eval-in-train-mode", "    model.eval()\n", "", "model(*batch)"),
    Case("trains-in-eval-mode", "    model.train()\n", "", "model(tokens, targets)"),
    Case("several-writers", "if rank == 0 and (epoch", "if (epoch", "torch.save(", ("crashed",)),
    Case(
        "in-place", 'f"{PATH}.part")\n    os.replace(f"{PATH}.part", PATH)\n', "PATH)\n",
        "torch.save(",
    ),
    Case("state-missing", ', "optimizer": optimizer.state_dict()}', "}", "torch.save("),
    Case("wrapped-names", "model.module.state_dict()", "model.state_dict()", "torch.save("),
    Case("last-steps-lost", "VOCABULARY = 4, 2", "VOCABULARY = 5, 2", "torch.save("),
    Case("loss-of-one-rank", "dist.all_reduce(mean)", "mean = loss.detach()", None),
    Case("group-not-left", "    dist.destroy_process_group()\n", "", None),
    Case(
        "crashed", "loss.backward()", "loss.backward() if rank else None.backward()",
        "None.backward()",
    ),
    Case("nothing-trained", "nprocs=2", "nprocs=0", None),
    Case("dataset-differs", "dataset = Tokens()", "dataset = Tokens(rank)", "DataLoader(training"),
    Case(
        "loader-restarts", "        for tokens, targets in loader:",
        "        next(iter(loader))\n        for tokens, targets in loader:", "next(iter(loader))",
    ),
    Case(
        "eval-padded",
        "range(rank, len(held), world_size))\n    held_loader = DataLoader(mine, batch_size=BATCH)",
        "range(15))\n    sampler_of_held = DistributedSampler(mine)\n"
        "    held_loader = DataLoader(mine, batch_size=BATCH, sampler=sampler_of_held)",
        "for batch in loader",
    ),
    Case(
        "clip-before-unscale",
        "            loss.backward()\n"
        "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "            optimizer.step()\n",
        '            scaler = torch.amp.GradScaler("cpu")\n'
        "            scaler.scale(loss).backward()\n"
        "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "            scaler.step(optimizer)\n",
        "clip_grad_norm_", ("state-missing",),
    ),
    Case("fixed-port", "{held.getsockname()[1]}", "29731", "29731"),
    Case(
        "sync-every-microstep", "_, loss = model(tokens, targets)\n",
        "model(tokens, targets)[1].backward()\n            _, loss = model(tokens, targets)\n",
        "[1].backward()",
    ),
    Case(
        "group-of-one", "DDP(Model())", "DDP(Model(), process_group=dist.new_subgroups(1)[0])",
        "DDP(", ("diverged",),
    ),
    Case(
        "scheduler-runs-ahead", "schedule.step()",
        "[schedule.step() for _ in range(world_size)]", "CosineAnnealingLR(",
    ),
    Case(
        "unequal-steps", LAST,
        f"{LAST}    if rank == 0:\n        model.module(tokens, targets)\n"
        "        optimizer.step()\n", None,
    ),
    Case(
        "hung", LAST,
        f"{LAST}    dist.broadcast(mean, 1) if rank == 0 else dist.all_reduce(mean)\n",
        "dist.broadcast(mean, 1)", ("calls-differ",),
    ),
    Case(
        "calls-differ", LAST,
        f"{LAST}    dist.all_reduce(mean) if rank == 0 else dist.broadcast(mean, 0)\n",
        "dist.broadcast(mean, 0)", ("hung", "crashed"),
    ),
    Case(
        "device-from-rank", "    dataset = Tokens()\n",
        "    if torch.cuda.is_available():\n        torch.cuda.set_device(dist.get_rank())\n"
        "    dataset = Tokens()\n", "set_device",
    ),
]  # fmt: skip

RESTARTS = [
    Case("resume-fails", '"epochs": epochs}', '"epochs": epochs, "by": Model}', "torch.load("),
    Case("resume-count", '"epochs": epochs}', '"epochs": epochs - 1}', "optimizer.step()"),
    Case(
        "resume-weights", '    model.module.load_state_dict(state["model"])\n', "",
        "optimizer.step()",
    ),
    Case(
        "resume-optimizer", '    optimizer.load_state_dict(state["optimizer"])\n', "",
        "optimizer.step()",
    ),
    Case(
        "resume-schedule", '    schedule.load_state_dict(state["schedule"])\n', "",
        "optimizer.step()",
    ),
    Case("resume-data", "set_epoch(epoch)", "set_epoch(epoch - begin)", "loss = model(tokens"),
    Case("resume-differs", "        torch.manual_seed(world_size * epoch + rank)\n", "", None),
]  # fmt: skip
