"""Train a GPT with experts, and count the tokens that each expert gets, without and with balance.

    torchrun --standalone --nproc_per_node=1 -m docs.labs.expert_load

Each balance has the same initial weights and batches.
"""

import contextlib
import io
import json
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from mingpt.config import Config
from parallel import experts

STEPS, WINDOW = 400, 20  # steps of training, and those of which the tokens are counted


def train(balance, folder):
    """Each expert's share of the tokens, [window, block, expert], and the last validation loss."""
    experts.BALANCE, counted = balance, []
    rule = experts.DividedExperts.busy

    def count(layer, counts):
        if layer.training:
            counted.append(counts)
        return rule(layer, counts)

    args = Config(
        data="LICENSE", model="gpt-nano", block_size=64, total_steps=STEPS, learning_rate=2e-3,
        eval_every=STEPS, save_every=STEPS, log_every=STEPS, warmup_steps=20, precision="fp32",
        dropout=0.0, checkpoint_path=str(folder / "experts.pt"), cache=str(folder / "data"),
    )  # fmt: skip
    experts.DividedExperts.busy = count
    dataset, model, optimizer = experts.load_train_objs(args)
    loader = experts.prepare_dataloader(dataset, args)
    trainer = experts.Trainer(model, loader, optimizer, args)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        trainer.train(STEPS)
    experts.DividedExperts.busy = rule
    shape = STEPS // WINDOW, WINDOW, -1, experts.EXPERTS
    counts = torch.stack(counted).view(shape).sum(1)
    loss = next(line for line in out.getvalue().splitlines() if "val loss" in line)
    return counts / counts.sum(2, keepdim=True), loss.split(" | ")[1].split(" over")[0]


def main():
    dist.init_process_group("gloo")
    for balance in (0, 0.01):
        with tempfile.TemporaryDirectory() as folder:
            shares, loss = train(balance, Path(folder))
        for block, load in enumerate(shares[-1].tolist()):
            percents = " ".join(f"{share:4.0%}" for share in load)
            print(f"BALANCE {balance:<4} block {block}: {percents}  {loss}")
        print(json.dumps({"balance": balance, "shares": shares.mul(1000).round().int().tolist()}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
