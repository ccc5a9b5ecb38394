"""Which files of ours the programs import: `python caas/contents.py FOLDER` copies them to their image."""

from __future__ import annotations

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[1]
_PACKAGES = ("caas", "gpuclusters")
_TABLES = Path("gpuclusters/compat/data")
_TABLE = re.compile(r'\.packaged\("(\w+)"\)')
"""Where a module reads a dated table."""


def files(project: Path = _PROJECT) -> list[Path]:
    """All of `caas` and what it imports, directly or not; relative to the project."""
    found: set[Path] = set()
    waiting = [file.relative_to(project) for file in (project / "caas").rglob("*.py")]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _imported(project, file)
    tables = {table for file in found for table in _TABLE.findall((project / file).read_text())}
    return sorted(found | {_TABLES / f"{table}.yaml" for table in tables})


def _imported(project: Path, file: Path) -> Iterator[Path]:
    """The modules that a file imports, and the packages that Python imports before it."""
    names = [".".join(file.parts[:depth]) for depth in range(1, len(file.parts))]
    for node in _executed(ast.parse((project / file).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    for name in names:
        path = Path(*name.split("."))
        if path.parts[0] in _PACKAGES:
            options = (path.with_suffix(".py"), path / "__init__.py")
            yield from (one for one in options if (project / one).is_file())


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but what only type checkers read."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
        yield node
        yield from _executed(node)


if __name__ == "__main__":
    for one in files():
        target = Path(sys.argv[1], one)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_PROJECT / one, target)
