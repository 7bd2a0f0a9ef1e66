"""The workshop's part of ddp_doctor's probe, which runs this file before the script."""

import gc
import sys
from pathlib import Path

import _ddp_doctor as recorder

gc.set_threshold(1_000_000)  # the collector takes a sixth of `import torch`
recorder.__path__.append(str(Path(__file__).parent))
recorder.PARTS.append("samples")


def _watch_utils(utils):
    if choose := getattr(utils, "set_device", None):
        utils.set_device = recorder.around(choose, lambda i: recorder.fact("device", index=i))


sys.meta_path.insert(0, recorder.After("utils", _watch_utils))
