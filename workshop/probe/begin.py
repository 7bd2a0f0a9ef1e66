"""The workshop's part of ddp_doctor's probe, which runs this file before the script."""

import gc
from pathlib import Path

import _ddp_doctor as recorder
from _ddp_doctor import imports

gc.set_threshold(1_000_000)  # the collector takes a sixth of `import torch`
recorder.__path__.append(str(Path(__file__).parent))
recorder.PARTS.append("samples")


def _watch_utils(utils):
    if choose := getattr(utils, "set_device", None):
        utils.set_device = recorder.around(choose, lambda i: recorder.fact("device", index=i))


imports.after("utils", _watch_utils)
