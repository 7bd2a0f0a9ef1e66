"""Who am I? Each process says what torchrun has told it.

    torchrun --standalone --nproc_per_node=2 docs/labs/hello.py
"""

import os
import sys

names = ("GROUP_RANK", "LOCAL_RANK", "RANK", "WORLD_SIZE")
text = "  ".join(f"{name}={os.environ[name]}" for name in names)
sys.stdout.write(f"rank {os.environ['RANK']}: {text}\n")
