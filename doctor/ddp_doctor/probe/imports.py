"""Call a function as soon as the import of a module has ended."""

import importlib.abc
import importlib.util
import sys


def after(name, then):
    """Call `then` with the module `name` once it is imported."""
    sys.meta_path.insert(0, _Finder(name, then))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name, then):
        self.name, self.then, self.asks = name, then, False

    def find_spec(self, name, path, target=None):
        if name != self.name or self.asks:
            return None
        self.asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asks = False
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                if self in sys.meta_path:  # until now: others may only ask whether it is there
                    sys.meta_path.remove(self)
                    self.then(module)

            spec.loader.exec_module = exec_module
        return spec
