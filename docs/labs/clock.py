"""Put the seconds since the start before each line of the input.

    (python single_gpu.py 5 5; python multigpu.py 5 5) | python docs/labs/clock.py
"""

import sys
import time

start = time.monotonic()
for line in sys.stdin:
    print(f"{time.monotonic() - start:5.1f} s | {line}", end="", flush=True)
