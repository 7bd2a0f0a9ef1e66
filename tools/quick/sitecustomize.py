"""Turn the garbage collector down. Every Python of a page, or on a node of the tests, runs this.

The collector costs half a second of `import torch`, a sixth, and most of a second at exit. A site
starts more than a hundred processes, which print the same without it. So do the nodes.
"""

import atexit
import gc

gc.set_threshold(1_000_000)
atexit.register(gc.freeze)
