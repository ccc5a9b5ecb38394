"""`gpu-clusters explain`: what an error means and what to do, by the id that it was printed with."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gpuclusters.cli.errors import UsageError
from gpuclusters.errors.catalogue import catalogue, nearest
from gpuclusters.errors.entry import Category, Entry

app = typer.Typer(add_completion=False)


class UnknownIdError(UsageError):
    """No error of this version has that id.

    Do: copy it from the message, without the brackets; `gpu-clusters explain` lists all.
    """


@app.command("explain")
def command(
    id_: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="As printed in brackets. Without one, all are listed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say what an error means, what to do, and where it is raised.

    Example: `gpu-clusters explain host-key-mismatch`
    """
    entries = catalogue()
    found = list(entries.values()) if id_ is None else [_found(id_)]
    if as_json:
        documents = [{**asdict(entry), "raised": entry.raised} for entry in found]
        shown = documents if id_ is None else documents[0]
        sys.stdout.write(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
    elif id_ is None:
        _list(found)
    else:
        _show(found[0])


def _found(id_: str) -> Entry:
    entry = catalogue().get(id_.strip("[] "))
    if entry is None:
        near = nearest(id_)
        instead = f"did you mean {near}?" if near else "`gpu-clusters explain` lists all"
        raise UnknownIdError(f"no error has the id {id_!r}; {instead}")
    return entry


def _list(entries: list[Entry]) -> None:
    console = Console(highlight=False)
    for category in Category:
        console.print(f"[bold]{escape(category)}[/bold]", soft_wrap=True)
        for entry in entries:
            if entry.category is category:
                line = f"  {entry.id}  [dim]{escape(entry.causes[0])}[/dim]"
                console.print(line, overflow="ellipsis", no_wrap=True)


def _show(entry: Entry) -> None:
    console = Console(highlight=False)
    kind = " (a warning)" if entry.warning else ""
    console.print(f"[bold]{escape(entry.id)}[/bold]{kind}")
    for title, texts in (
        ("means", entry.causes),
        ("says", entry.messages),
        ("do", entry.fixes),
        ("where", tuple(one for one in (entry.raised, entry.place) if one)),
        ("source", (entry.source,) if entry.source else ()),
    ):
        for position, text in enumerate(texts):
            name = f"{title}:" if position == 0 else ""
            console.print(f"  [dim]{name:<8}[/dim]{escape(text)}", soft_wrap=True)
    page = entry.id.replace(".", "")
    console.print(f"  [dim]{'more:':<8}[/dim]docs/errors.md#{page}", soft_wrap=True)
