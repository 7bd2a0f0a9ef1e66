"""Put the seconds since the start before each line of the input.

for stage in multigpu@1 multigpu@2; do echo "--- $stage"; python -m tools.series run $stage 2 2; done |
    python docs/labs/clock.py
"""

import sys
import time

start = time.monotonic()
for line in sys.stdin:
    print(f"{time.monotonic() - start:5.1f} s | {line}", end="", flush=True)
