"""Found first by every Python of an observed run, spawned and torchrun children included."""

import gc
import importlib.machinery
import importlib.util
import os
import sys


def _run(name, spec):
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != _folder]  # as if it had never been there
if _theirs := importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path):
    _run("sitecustomize", _theirs)  # the one that this one hides
if "WORKSHOP_FACTS" in os.environ:
    gc.set_threshold(1_000_000)  # a sixth of `import torch` is looking for garbage
    _file = os.path.join(_folder, "recorder.py")
    _name = "_workshop_recorder"
    _run(_name, importlib.util.spec_from_file_location(_name, _file)).start()
