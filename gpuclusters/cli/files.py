"""Files that options name: what cannot be read or written is said in a sentence."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gpuclusters.cli.errors import RunError, UsageError


def read(path: Path, what: str = "") -> str:
    """The text of a file; `what` it is to be, as in "the kubeconfig "."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(
            f"{what}{path} cannot be read: {why}", "command.unreadable-file"
        ) from error


def read_json(path: Path) -> Any:
    return _parsed(path, "JSON", json.loads, ValueError)


def read_yaml(path: Path) -> Any:
    """What a file holds; nothing in it is an empty mapping."""
    return _parsed(path, "YAML", yaml.safe_load, yaml.YAMLError) or {}


def _parsed(path: Path, form: str, parse: Callable[[str], Any], fault: type[Exception]) -> Any:
    text = read(path)
    try:
        return parse(text)
    except (fault, RecursionError) as error:
        said = f"{path} cannot be read as {form}: {error}"
        raise UsageError(said, "command.unreadable-file") from error


def write(path: Path, text: str, what: str = "") -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        said = f"{what}{path} cannot be written: {error.strerror}"
        raise RunError(said, "command.not-written") from error
