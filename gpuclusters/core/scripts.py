"""Scripts for machines and pods, and manifests: a room's package data, `gpuclusters/ROOM/scripts/FILE`."""

import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

import yaml

from gpuclusters.core.model import LOADER


@cache
def read(name: str) -> str:
    """The text of `ROOM/FILE`, or of a file in another folder of the room: `ROOM/FOLDER/FILE`."""
    room, *folders, file = name.split("/")
    return (files("gpuclusters") / room).joinpath(*folders or ["scripts"], file).read_text("utf-8")


def texts(room: str) -> Mapping[str, str]:
    """All scripts of a room, by file name."""
    folder = files("gpuclusters") / room / "scripts"
    return {file.name: read(f"{room}/{file.name}") for file in folder.iterdir()}


def digest(*names: str) -> str:
    """Over the texts of several: another text is another digest."""
    whole = hashlib.sha256()
    for name in names:
        whole.update(f"{name}\0{read(name)}\0".encode())
    return whole.hexdigest()


class _Words(Template):
    braceidpattern = "[a-zA-Z0-9_.-]+"


_ALONE = re.compile(r"\$\{([a-zA-Z0-9_.-]+)\}")


def manifest(name: str, words: Mapping[str, Any], *parts: str) -> Any:
    """What `ROOM/FILE` of a room's manifests says, or a part of it, with words in place of `${NAME}`."""
    found = _parsed(name)
    for part in parts:
        found = found[part]
    return filled(found, words)


@cache
def _parsed(name: str) -> Any:
    room, file = name.split("/")
    return yaml.load(read(f"{room}/manifests/{file}"), LOADER)  # noqa: S506 (a safe one)


def filled(part: Any, words: Mapping[str, Any]) -> Any:
    """A part of a document with words in place of `${NAME}`.

    A text that is one word alone is the value of that word, of any type; an entry with None is left out.
    """
    match part:
        case str():
            alone = _ALONE.fullmatch(part)
            return words[alone[1]] if alone else _Words(part).substitute(words)
        case list():
            items = ((one, filled(one, words)) for one in part)
            return [value for said, value in items if value is not None or said is None]
        case dict():
            entries = ((filled(key, words), said) for key, said in part.items())
            pairs = ((key, said, filled(said, words)) for key, said in entries)
            return {key: value for key, said, value in pairs if value is not None or said is None}
    return part
