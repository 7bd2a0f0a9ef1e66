"""Every Python of an observed run imports this first, including spawned and torchrun's children."""

import importlib.machinery
import importlib.util
import os
import sys


def _run(name, spec):
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != _folder]  # hide the probe from the script
if _theirs := importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path):
    _run("sitecustomize", _theirs)  # this file hides theirs
if "DOCTOR_FACTS" in os.environ:
    _file = os.path.join(_folder, "recorder.py")
    _spec = importlib.util.spec_from_file_location(
        "_ddp_doctor", _file, submodule_search_locations=[_folder]
    )
    _run("_ddp_doctor", _spec).start()
