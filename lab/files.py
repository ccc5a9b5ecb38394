"""Files that are there whole or not at all."""

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any


class At:
    """An attribute of a class of folders: what lies there, below the folder's own `path`, or another one."""

    def __init__(self, name: str, below: str = "path") -> None:
        self._name = name
        self._below = below

    def __get__(self, folder: Any, owner: type) -> Path:
        below: Path = getattr(folder, self._below)
        return below / self._name


def write_atomic(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replace `path` with `content`; does nothing when it holds that already."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
            return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        # Created with its mode: a private key is never readable for others, not for an instant.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """The content of a JSON file, None when there is no such file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file, readable by its owner alone. In one line: the encoder in C writes no other."""
    write_atomic(path, (json.dumps(value, sort_keys=True) + "\n").encode(), mode=0o600)
