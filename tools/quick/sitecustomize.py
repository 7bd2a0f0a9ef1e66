"""What every Python started by a page, or on a node of the tests, runs first.

Half a second of `import torch`, a sixth, is Python looking for garbage among the new modules, and
so is most of a second of its end. A site starts more than a hundred processes, and they print the
same without it; so do the nodes.
"""

import atexit
import gc

gc.set_threshold(1_000_000)
atexit.register(gc.freeze)
