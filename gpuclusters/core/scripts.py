"""Scripts for machines and pods: package data of the room that runs them, `gpuclusters/ROOM/scripts/FILE`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


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
