"""Files that are there whole or not at all, whatever happens while they are written."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from engine.usererror import UserError


def write_bytes(path: Path, content: bytes, *, durable: bool = True, mode: int = 0o600) -> None:
    """Replace a file in one step; the old one stays as it is if that does not succeed.

    `durable`: return only when the content would survive a loss of power.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
        temporary = None
        if durable:
            sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"could not write {path}: {explain(error)}") from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def write_text(path: Path, text: str) -> None:
    """`write_bytes` for a file that people edit: its permissions stay as they are."""
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        mode = 0o644
    write_bytes(path, text.encode(), mode=mode)


def explain(error: OSError) -> str:
    """What went wrong and what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk; make room and run the command again"
    if error.errno == errno.EFBIG:
        return "the file would be larger than is allowed (ulimit -f); raise the limit"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return (
            f"{(error.strerror or 'not allowed').lower()}; check who owns the file and its folder"
        )
    return error.strerror or str(error)


def sync_folder(folder: Path) -> None:
    """Make what was made, renamed or removed in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
