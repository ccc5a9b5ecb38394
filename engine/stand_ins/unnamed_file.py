"""Files without a name, for secrets that another program or library takes from files only."""

import tempfile
from typing import IO


def unnamed(content: bytes) -> IO[bytes]:
    """A file in no folder: it goes with the last process that has it open, however that one ends."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller's)
    file.write(content)
    file.seek(0)
    return file


def path_of(file: IO[bytes]) -> str:
    """A path that opens it, here and in a process that inherits its descriptor."""
    return f"/dev/fd/{file.fileno()}"
