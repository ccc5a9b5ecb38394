"""A machine of its own within this one, for tests; skipped, with the reason, where there can be none."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.rootless import node as rootless_node
from tests.rootless.node import PrivateMachine, RootlessNodeError

__all__ = ["PrivateMachine", "needed", "private_machine"]


def needed() -> None:
    """Skips, with the reason, where there can be none: asked before anything is fetched or built."""
    if sys.platform != "linux":
        pytest.skip(f"namespaces are Linux's; this is {sys.platform}")
    if os.geteuid() != 0:
        pytest.skip("a machine within this one is made by root, and this is not root")
    for program in ("unshare", "nsenter", "setpriv"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} of util-linux is not installed here")


@contextmanager
def private_machine(*layers: Path) -> Iterator[PrivateMachine]:
    """A machine with the files of the layers over those of this one; skips, with the reason, elsewhere."""
    needed()
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(rootless_node.private_machine(*layers))
        except RootlessNodeError as error:
            pytest.skip(str(error))
        yield machine
