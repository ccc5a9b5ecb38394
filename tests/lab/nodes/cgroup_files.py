"""What the kernel says of the cgroups of a pod, while those of others come and go beside them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def of_pod(groups: Iterable[Path], pod: str, names: Sequence[str]) -> set[str]:
    """What is in the files of these names of a pod and its containers.

    `groups` are those of the node, there or not; `pod` is the pod's uid, which is in the names of its own.
    """
    found = set()
    for group in groups:
        # Not `glob`, which a folder that goes away meanwhile ends.
        for folder, _, files in os.walk(group):
            for name in {*files}.intersection(names) if pod in folder else ():
                with contextlib.suppress(OSError):
                    found.add(Path(folder, name).read_text().strip())
    return found
