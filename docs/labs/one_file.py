"""Make a checkpoint for mingpt.main and mingpt.sample of the shards of dcp.py.

    python docs/labs/one_file.py dcp.pt mingpt.pt

One process reads all shards, so the host needs room for the whole model.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

if len(sys.argv) != 3 or Path(sys.argv[2]).exists():
    sys.exit(f"{__doc__}\nThe second file must not exist yet.")
source, target = map(Path, sys.argv[1:])
checkpoint = torch.load(source)
with tempfile.TemporaryDirectory(dir=target.parent) as folder:
    whole = Path(folder, "whole")
    dcp_to_torch_save(f"{source}.shards/{checkpoint['steps_run']}", whole)
    shards = torch.load(whole)
    state = {int(key): value for key, value in shards["optimizer"].items()}
    shards["optimizer"] = {"state": state}  # DCP makes strings of the keys
    torch.save(checkpoint | shards, whole)
    whole.rename(target)
