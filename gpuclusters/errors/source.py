"""What the source of this program says: functions, classes and the texts in them. Nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GAP = "…"
"""Stands in a message for what is known only when it is printed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One file, parsed."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name = name
        self.tree = tree
        self.classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Module and name by the name under which it is known here."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in _statements(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def functions(self) -> dict[str, Function]:
        """By name."""
        return {node.name: node for node in ast.walk(self.tree) if isinstance(node, Function)}

    def defines(self, name: str) -> tuple[str, str]:
        """Module and name of what a name in this module stands for."""
        return self.imports.get(name, (self.name, name))


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Those of a module, also what only type checkers read: names that are imported when asked for."""
    for node in tree.body:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body):
                yield from body
            case _:
                yield node


@cache
def module(name: str) -> Module | None:
    """The module of a dotted name; None if it is no file of ours."""
    path = ROOT.joinpath(*name.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return None
    return Module(name, ast.parse(file.read_text(encoding="utf-8")))


def resolved(name: str, attribute: str) -> tuple[str, str]:
    """Module and name of where something is defined that a package passes on."""
    home = module(name)
    where, real = home.defines(attribute) if home else (name, attribute)
    return (where, real) if where == name else resolved(where, real)


def modules(package: str, having: str) -> Iterator[Module]:
    """Modules below a package whose text has something, in the order of their names.

    Args:
        package: dotted name.
        having: a regular expression; parsing everything would take seconds.
    """
    sought = re.compile(having, re.MULTILINE)
    for file in sorted(ROOT.joinpath(*package.split(".")).rglob("*.py")):
        if not sought.search(file.read_text(encoding="utf-8")):
            continue
        parts = file.relative_to(ROOT).with_suffix("").parts
        found = module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
        if found is not None:
            yield found


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Calls of something by its plain name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def reached(start: Module, function: Function, depth: int = 3) -> Iterator[tuple[Module, Function]]:
    """A function and those of ours that it calls."""
    yield start, function
    if not depth:
        return
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        target: Module | None = None
        name = ""
        if isinstance(node.func, ast.Name):
            where, name = start.defines(node.func.id)
            target = module(where)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            where, last = start.imports.get(node.func.value.id, ("", ""))
            target, name = module(f"{where}.{last}") if where else None, node.func.attr
        found = target.functions.get(name) if target is not None else None
        if target is not None and found is not None and found is not function:
            yield from reached(target, found, depth - 1)


def text(node: ast.expr | None, scope: ast.AST | None = None) -> str:
    """A text as it is written, with a gap for each value that is put in.

    Args:
        node: what is printed.
        scope: the function around it, in which texts may have been given names.
    """
    match node:
        case ast.Constant(value=str(said)):
            return said
        case ast.JoinedStr(values=parts):
            return "".join(text(part) for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text(left, scope) + text(right, scope)
        case ast.IfExp(body=body):
            return text(body, scope)
        case ast.Name(id=name) if scope is not None:
            return text(_given(name, node.lineno, scope))
    return GAP


def _given(name: str, line: int, scope: ast.AST) -> ast.expr | None:
    """What a name was last given before a line."""
    given = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and node.lineno < line
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == name
    ]
    return max(given, key=lambda node: node.lineno).value if given else None


def argument(call: ast.Call, position: int, name: str, scope: ast.AST | None = None) -> str:
    """The text of an argument; empty if it holds nothing but values."""
    stated = next((one.value for one in call.keywords if one.arg == name), None)
    if stated is None and position < len(call.args):
        stated = call.args[position]
    said = " ".join(text(stated, scope).split()) if stated is not None else ""
    return said if said.strip(f" {GAP},;:()") else ""


def documented(node: ast.ClassDef | Function) -> tuple[str, str]:
    """What a docstring says it means, and what follows "Do:"."""
    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
    told = [" ".join(one.split()) for one in paragraphs]
    fix = next((one.removeprefix("Do: ") for one in told if one.startswith("Do: ")), "")
    meaning = [one for one in told if not one.startswith(("Do: ", "Attributes:", "Args:"))]
    return " ".join(meaning), fix[:1].upper() + fix[1:]
