"""What every Python started by a page runs first.

A sixth of the time that `import torch` takes, half a second, is Python's garbage collector looking
through the new modules for garbage. A site starts 130 processes, and their output is the same without.
"""

import gc

gc.set_threshold(1_000_000)
