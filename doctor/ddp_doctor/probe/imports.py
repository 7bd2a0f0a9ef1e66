"""Call functions as soon as the import of a module has ended."""

import importlib.abc
import sys

_coming = {}  # by name of a module: the functions


def after(name, then):
    """Call `then` with the module `name` once it is imported."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _coming.setdefault(name, []).append(then)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name not in _coming:
            return None
        others = (one for one in sys.meta_path if not isinstance(one, _Finder))
        asked = (one for one in others if hasattr(one, "find_spec"))  # an old finder has none
        found = (one.find_spec(name, path, target) for one in asked)
        thens = _coming.pop(name)  # another finder may ask all others, and so this one
        try:
            spec = next(filter(None, found), None)
        finally:
            _coming[name] = thens
        if spec and spec.loader:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                for then in _coming.pop(name, ()):  # until now: others may only ask for it
                    then(module)

            spec.loader.exec_module = exec_module
        return spec
