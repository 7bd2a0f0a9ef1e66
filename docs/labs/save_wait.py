"""How long training waits for a save in shards, and how long the save takes.

    torchrun --standalone --nproc_per_node=2 -m docs.labs.save_wait
"""

import statistics
import time

import torch.distributed as dist

from mingpt.config import Config
from parallel import dcp

args = Config(
    model="gpt-mini", n_embd=768, data="LICENSE", block_size=16, total_steps=2, warmup_steps=0,
    precision="fp32", checkpoint_path="save_wait.pt",
)  # fmt: skip
dcp.ddp_setup()
dataset, model, optimizer = dcp.load_train_objs(args)
trainer = dcp.Trainer(model, dcp.prepare_dataloader(dataset, args), optimizer, args)
trainer._run_batch(*trainer.train_data[0][0], is_last=True)
optimizer.step()  # makes the optimizer's state
waits, saves = [], []
for step in range(5):
    start = time.perf_counter()
    trainer._save_checkpoint(step)
    waits.append(time.perf_counter() - start)
    trainer._wait()
    saves.append(time.perf_counter() - start)
    dist.barrier()
if dist.get_rank() == 0:
    size = sum(3 * 4 * parameter.numel() for parameter in model.parameters()) / 1e6
    wait, save = statistics.median(waits), statistics.median(saves)
    print(f"{size:.0f} MB: the save takes {save:.2f} s, of which training waits {wait:.2f} s")
    print(f"that is {wait / save:.0%} of it")
del trainer, model
dist.destroy_process_group()
