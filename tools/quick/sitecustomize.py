"""Turn the garbage collector down. Every Python of a page, or of a lesson in the tests, runs this.

The collector costs a quarter of the time of `import torch, torch._dynamo`, and most of a second at
exit. Hundreds of processes print the same without it.
"""

import atexit
import gc
from importlib.util import find_spec

gc.set_threshold(1_000_000)
if not find_spec("triton"):  # which would print at exit that its objects leak
    atexit.register(gc.freeze)
