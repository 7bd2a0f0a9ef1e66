"""Samples per second of multigpu.py, with one process and with two.

    python docs/labs/speeds.py
"""

import os
import re
import statistics
import subprocess
import sys
import tempfile


def speed(batch_size, processes):
    with tempfile.TemporaryDirectory() as folder:
        log = subprocess.run(
            [sys.executable, "multigpu.py", "10", "10",
             f"--batch_size={batch_size}", f"--checkpoint_path={folder}/x.pt"],
            env=os.environ | {"NPROC": str(processes)}, check=True,
            stdout=subprocess.PIPE, text=True).stdout
    speeds = re.findall(r"([\d,]+) samples/s", log)
    return statistics.median(int(s.replace(",", "")) for s in speeds)


for batch_size in (32, 1024):
    for processes in (1, 2):
        name = f"{processes} process{'es' * (processes > 1)}"
        print(f"batch size {batch_size:5,}, {name}: "
              f"{speed(batch_size, processes):9,.0f} samples/s")
