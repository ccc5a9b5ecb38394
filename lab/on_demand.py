"""Packages whose names are imported when somebody asks for them.

Each server of the lab is a process that needs some modules of a package, and each node has a first process of
its own: with all that the names of a package need, it would take longer to import than the node to start.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` has its modules, each with the words that it gives.

    Raises, when called, `AttributeError` for a name that no module gives.
    """
    where = {
        name: f"{package}.{module}" for module, given in homes.items() for name in given.split()
    }

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(where[name]), name)
        # The next one finds it as any other name.
        setattr(sys.modules[package], name, found)
        return found

    return find
