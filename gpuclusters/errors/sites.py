"""What is told about refusals, by the function that refuses, and about classes of errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gpuclusters.domain import error_id
from gpuclusters.errors import source
from gpuclusters.errors.entry import MESSAGE_SAYS, Category, Entry
from gpuclusters.providers.failures import FOR_THE_USER
from gpuclusters.providers.properties import INVALID_INPUT

FABRIC = ("gpuclusters.fabric.answers", "FabricError")
FAMILIES = (
    *((kind.__module__, kind.__qualname__) for kind in FOR_THE_USER),
    ("gpuclusters.cli.errors", "UsageError"),
    ("gpuclusters.cli.errors", "RunError"),
    ("gpuclusters.cli.forge", "ForgeError"),
    ("gpuclusters.config.inventory", "InventoryError"),
    ("gpuclusters.review.gates", "GateError"),
    ("gpuclusters.review.plan", "PlanError"),
    ("gpuclusters.review.price_table", "PriceError"),
    ("engine.usererror", "UserError"),
    ("lab.lifecycle", "LabError"),
)
"""Classes whose text is written for the user; those of the lab and what is derived from any are found."""
_PACKAGES = ("gpuclusters", "engine", "lab")
_DERIVED = r"^class \w+\(.*Error"
_SPOKEN_BY_INSTANCE = (FABRIC, ("gpuclusters.core.finding", "Refused"))
"""Families whose own class is never the id: refusals have codes, answers numbers."""


def functions_that_call(home: source.Module, name: str) -> Iterator[tuple[str, ast.Call, ast.AST]]:
    """The calls of something in a module, with the id of the function around each, and that function."""

    def below(
        node: ast.AST, names: tuple[str, ...], scope: ast.AST
    ) -> Iterator[tuple[str, ast.Call, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner, around = names, scope
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner, around = (*names, child.name), child
            if (
                isinstance(child, ast.Call)
                and isinstance(child.func, ast.Name)
                and child.func.id == name
            ):
                yield error_id.of_function(home.name, ".".join(names)), child, scope
            yield from below(child, inner, around)

    yield from below(home.tree, (), home.tree)


def families() -> Iterator[tuple[str, str]]:
    """Module and name of every class that is written for the user."""
    yield from FAMILIES


def classes() -> Iterator[Entry]:
    """Errors that are named after their class."""
    known = dict.fromkeys(families())
    everything = [home for package in _PACKAGES for home in source.modules(package, _DERIVED)]
    growing = True
    while growing:
        growing = False
        for home in everything:
            for one in home.classes:
                bases = [home.defines(b.id) for b in one.bases if isinstance(b, ast.Name)]
                if (home.name, one.name) not in known and any(base in known for base in bases):
                    known[home.name, one.name] = None
                    growing = True
    for name, kind in sorted(known):
        node = _class(name, kind)
        if node is None or (name, kind) in _SPOKEN_BY_INSTANCE or kind.startswith("_"):
            continue
        meaning, fix = source.documented(node)
        yield Entry(
            error_id.of_class_name(name, kind),
            _category(name),
            (meaning,),
            (fix or MESSAGE_SAYS,),
            place=name,
        )
    yield Entry(
        INVALID_INPUT,
        Category.STEP,
        ("An input of a resource is of the wrong kind or form, or does not fit to another input.",),
        ("Correct the argument that the message names; a program of ours would be at fault.",),
        place="gpuclusters.providers.properties",
    )
    yield Entry(
        "defect",
        Category.STEP,
        ("A defect of this program; nothing was written for it because it must not happen.",),
        ("Report it with the traceback on standard error. Running again is safe.",),
    )


def _class(name: str, kind: str) -> ast.ClassDef | None:
    home = source.module(name)
    return next((one for one in home.classes if one.name == kind), None) if home else None


def _category(module: str) -> Category:
    if module.startswith("lab."):
        return Category.LAB
    if module.startswith(("gpuclusters.cli", "gpuclusters.review")):
        return Category.COMMAND
    return Category.LAB if module == "gpuclusters.config.inventory" else Category.STEP
