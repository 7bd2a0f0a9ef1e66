"""Who prepares a file, and which ranks find it? Nodes share no disk.

PYTHONPATH=$PWD python docs/labs/nodes.py docs/labs/once.py FOLDER
"""

import sys
from pathlib import Path

import torch.distributed as dist

from mingpt.once import run_on_main, run_once_per_node


def say(text):
    sys.stdout.write(f"rank {dist.get_rank()} | {text}\n")
    sys.stdout.flush()


def prepare(file):
    say(f"prepares {file.name}")
    file.write_text("tokens")


dist.init_process_group("gloo")
for run in (run_on_main, run_once_per_node):
    file = Path(sys.argv[1]) / run.__name__
    try:
        run(prepare, file)
        say("finds it" if file.exists() else "DOES NOT FIND IT")
    except OSError as error:
        say(f"raises {type(error).__name__}: {error.strerror}")
    dist.barrier()
dist.destroy_process_group()
