"""docs/cli.md and docs/errors.md, made of the command itself: `python -m gpuclusters.cli.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import typer
from typer.core import TyperArgument, TyperGroup

from gpuclusters.cli import explain
from gpuclusters.cli.help import EXAMPLES, MORE, PANELS, PROGRAM

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
_START, _END = (
    "<!-- commands: made by `make schema` -->\n",
    "<!-- end of commands -->",
)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its path, groups before what is in them, in the order of the help."""
    from gpuclusters.cli.main import app

    root: Any = typer.main.get_command(app)
    context = typer.Context(root, info_name=PROGRAM)
    yield from _below(root, context)


def _below(group: TyperGroup, context: Any) -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(context):
        command: Any = group.get_command(context, name)
        inner = typer.Context(command, parent=context, info_name=name)
        path = " ".join(inner.command_path.split()[1:])
        yield path, command
        if isinstance(command, TyperGroup):
            yield from _below(command, inner)


def render() -> str:
    """Every command of the program with its options."""
    lines: list[str] = []
    panel = ""
    for path, command in commands():
        depth = len(path.split())
        if depth == 1:
            here = next((name for name, ones in PANELS.items() if path in ones), MORE)
            if here != panel:
                panel = here
                lines += [f"## {panel}", ""]
        lines += [*_section(path, command, depth), ""]
    return "\n".join(lines)


def _section(path: str, command: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * (depth + 2)} {path}"
    yield ""
    yield " ".join(_sentence(command))
    context = typer.Context(command, info_name=f"{PROGRAM} {path}")
    rest = " ".join(command.collect_usage_pieces(context))
    yield ""
    yield "```"
    yield f"{PROGRAM} {path} {rest}"
    yield "```"
    options = [one for one in command.params if one.name != "help"]
    if options:
        yield ""
        yield "| | Value | Default | Meaning |"
        yield "|---|---|---|---|"
        for option in options:
            yield _row(option, context)
    if path in EXAMPLES:
        yield ""
        yield "```sh"
        for line, why in EXAMPLES[path]:
            yield f"{line}{f'   # {why}' if why else ''}"
        yield "```"


def _sentence(command: Any) -> Iterator[str]:
    for paragraph in (command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        yield text if text.endswith((".", "`")) else f"{text}."


def _row(option: Any, context: Any) -> str:
    if isinstance(option, TyperArgument):
        name = " ".join(f"`{piece}`" for piece in option.get_usage_pieces(context))
    else:
        name = ", ".join(f"`{one}`" for one in option.opts)
    text = (option.help or "").strip()
    if option.envvar:
        text += f" From the environment: `{option.envvar}`."
    return f"| {name} | {_value(option)} | {_default(option)} | {_cell(text)} |"


def _value(option: Any) -> str:
    if getattr(option, "is_flag", False):
        return "switch"
    kind = option.type_descriptor.annotation
    inner = [one for one in get_args(kind) if one is not NoneType]
    while inner:
        kind = inner[0]
        inner = [one for one in get_args(kind) if one is not NoneType]
    if isinstance(kind, type) and issubclass(kind, Enum):
        said = ", ".join(f"`{one.value}`" for one in kind)
    else:
        said = {int: "whole number", float: "number", Path: "path"}.get(kind, "text")
    return f"{said}; several" if option.multiple or option.nargs == -1 else said


def _default(option: Any) -> str:
    if option.required:
        return "required"
    value = option.default
    if value in (None, False, "", (), []):
        return "off" if getattr(option, "is_flag", False) else "not set"
    return f"`{getattr(value, 'value', value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def fill(page: str) -> str:
    """The page with its generated part as it must be; ValueError if it has no place for it."""
    if _START not in page or _END not in page:
        raise ValueError(f"{PAGE.name} has no place for the commands")
    before, rest = page.split(_START, 1)
    return f"{before}{_START}\n{render().strip()}\n\n{_END}{rest.split(_END, 1)[1]}"


def main() -> int:
    explain.PAGE.write_text(explain.render(), encoding="utf-8")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
