"""Run a command and send it SIGTERM after a given step, as a scheduler would.

python docs/labs/stop.py 50 torchrun --standalone -m mingpt.main
"""

import re
import signal
import subprocess
import sys

stop_after = int(sys.argv[1])
torchrun = subprocess.Popen(
    sys.argv[2:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
)
for line in torchrun.stdout:
    print(line, end="", flush=True)
    step = re.match(r"Step +(\d+) \| train", line)
    if step and int(step[1]) == stop_after:
        torchrun.send_signal(signal.SIGTERM)
        print(f"--- SIGTERM after step {stop_after}", flush=True)
sys.exit(torchrun.wait())
