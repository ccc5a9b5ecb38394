"""docs/cli.md and docs/errors.md, made of the command itself: `python -m docs.reference`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from gpuclusters.cli import explain
from gpuclusters.cli.help import EXAMPLES, MORE, PANELS, PROGRAM
from gpuclusters.core.codes import Code

FOLDER = Path(__file__).parent
PAGE, ERRORS = FOLDER / "cli.md", FOLDER / "errors.md"
_INTRODUCTION = """---
tocdepth: 2
---

# Errors

Every error and warning of this program carries its code at the end of its first line: `… [command.no-stack]`.
`gpu-clusters explain CODE` prints what stands here. Search for codes and alert on them: messages get better,
codes stay. Without a **Do**, do what the message says. *(configuration)*: found before anything starts. `…`
stands for names and values. The page is made by `make schema`. Errors of Pulumi's own engine, of the
embedded one, of Helm and of Kubernetes are passed on and have no code.

<!-- run -->
```console
$ gpu-clusters explain remote.disk-full
remote.disk-full
  means:  No space, or no inode, left on the host.
  do:     Make room on the machine; the old file is untouched.
…
```
"""
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
    if options := [one for one in command.params if one.name != "help"]:
        yield ""
        yield "| | Meaning |"
        yield "|---|---|"
        for name, text in (option.get_help_record(context) for option in options):
            said = " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")
            yield f"| `{name.replace('|', ', ')}` | {said} |"
    if path in EXAMPLES:
        yield ""
        yield "```sh"
        for line, why in EXAMPLES[path].items():
            yield f"{line}{f'   # {why}' if why else ''}"
        yield "```"


def _sentence(command: Any) -> Iterator[str]:
    for paragraph in (command.help or "").split("\n\n"):
        text = " ".join(paragraph.split())
        yield text if text.endswith((".", "`")) else f"{text}."


def fill(page: str) -> str:
    """The page with its generated part as it must be; ValueError if it has no place for it."""
    if _START not in page or _END not in page:
        raise ValueError(f"{PAGE.name} has no place for the commands")
    before, rest = page.split(_START, 1)
    return f"{before}{_START}\n{render().strip()}\n\n{_END}{rest.split(_END, 1)[1]}"


def errors() -> str:
    """docs/errors.md as it is committed."""
    paragraphs = []
    for area, found in groupby(explain.catalogue(), explain.area):
        paragraphs += [f"## {area}", *(part for code in found for part in _code(code))]
    return f"{_INTRODUCTION}\n" + "\n\n".join(paragraphs) + "\n"


def _code(code: str) -> Iterator[str]:
    told = {title: _escaped(text) for title, text in explain.told(code).items()}
    yield f"### {code}"
    where = told.pop("where", "")
    found = "configuration, a warning" if where.endswith("(a warning)") else "configuration"
    yield told.pop("means") + (f" *({found})*" if where else "")
    do = told.pop("do")
    if explain.catalogue()[code].do != Code.model_fields["do"].default:
        yield f"**Do**: {do}"
    yield from (f"{title.capitalize()}: {text}" for title, text in told.items())


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; what stands between backticks is left alone."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts = [text.replace("`", "'")]
    return "`".join(
        part if position % 2 else re.sub(r"([\\<*_\[\]|${])", r"\\\1", part)
        for position, part in enumerate(parts)
    )


def main() -> int:
    ERRORS.write_text(errors(), encoding="utf-8")
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
