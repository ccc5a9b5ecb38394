"""Helm charts that lie beside the stack: the file that was checked is the file that is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gpuclusters.adapters.errors import AdapterError


def checked(path: str, sha256: str, *, folder: Path | None = None) -> str:
    """The path, if the archive there has this checksum.

    Args:
        path: of the archive.
        sha256: its checksum, in hexadecimal digits.
        folder: what a relative path begins at; by default the present folder, which is the project's.

    Raises:
        AdapterError: there is no such file, or it is another one.
    """
    file = (folder or Path()) / path
    try:
        with file.open("rb") as archive:
            found = hashlib.file_digest(archive, "sha256").hexdigest()
    except OSError as error:
        raise AdapterError(
            f"the chart {path}",
            "read the archive",
            error.strerror or str(error),
            "put it there with `helm pull`",
        ) from error
    if found != sha256:
        raise AdapterError(
            f"the chart {path}",
            "use the archive",
            f"it is another file than configured: its SHA-256 is {found}, and not {sha256}",
            "put back the right one, or write the checksum of this one if you trust it",
        )
    return path
