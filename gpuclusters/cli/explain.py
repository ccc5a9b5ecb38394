"""`gpu-clusters explain`: what a code means and what to do. `docs.reference` makes a page of it."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping
from functools import cache
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.help import AsJson
from gpuclusters.config.stack import SECTIONS
from gpuclusters.core import codes
from gpuclusters.core.codes import Code
from gpuclusters.core.finding import Level
from gpuclusters.fabric.answers import CODES, id_of
from gpuclusters.policy.rules import RULES

POLICY = "policy"


@cache
def catalogue() -> Mapping[str, Code]:
    """Every code by area and name: those of `core/codes`, of the fabric manager and of the policy."""
    answers = {
        id_of(number): Code(
            means=f"The fabric manager answered {number}: {answer.meaning}.",
            do=f"{answer.remedy[:1].upper()}{answer.remedy[1:]}.",
            source="NVIDIA, nv_fm_types.h: fmReturn",
        )
        for number, answer in CODES.items()
    }
    answers[id_of(-1000)] = Code(
        means="The fabric manager answered with a number that its documentation does not have.",
        do="Read the fabric manager's log in the service VM.",
    )
    rules = {
        rule.id: Code(
            means=f"{rule.title[:1].upper()}{rule.title[1:]}.",
            do=f"docs/policy/{rule.id}.md says why, and what to do.",
        )
        for rule in RULES
    }
    found = {**codes.listed(), **answers, **rules}
    return {code: found[code] for code in sorted(found, key=lambda code: (area(code), code))}


@cache
def _where() -> Mapping[str, str]:
    """The cluster type that a rule of the configuration is about, by code."""
    return {
        rule.code: f"the configuration of {kind.value}"
        + (" (a warning)" * (rule.level is Level.WARN))
        for kind, section in SECTIONS.items()
        for rule in section.rules
    }


def area(code: str) -> str:
    area, dot, _ = code.partition(".")
    return area if dot else POLICY


def told(code: str) -> Mapping[str, str]:
    """All that is known of a code, with a gap for each value that a message puts in."""
    known = catalogue()[code]
    told = {
        "means": known.means,
        "do": codes.VALUE.sub("…", known.do),
        "drift": known.severity or "",
        "where": _where().get(code, ""),
        "source": known.source,
    }
    return {name: text for name, text in told.items() if text}


def command(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE]",
            help="As printed in brackets. Without one, all are listed.",
            autocompletion=lambda incomplete: [c for c in catalogue() if c.startswith(incomplete)],
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what an error means, what to do, and where it is raised.

    Example: `gpu-clusters explain remote.host-key-mismatch`
    """
    found = list(catalogue()) if code is None else [_known(code)]
    if as_json:
        documents = [{"code": one, **told(one)} for one in found]
        shown = documents if code is None else documents[0]
        sys.stdout.write(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
        return
    console = Console(highlight=False)
    if code is None:
        for one in found:
            line = f"{one}  [dim]{escape(catalogue()[one].means)}[/dim]"
            console.print(line, overflow="ellipsis", no_wrap=True)
        return
    console.print(f"[bold]{escape(found[0])}[/bold]")
    page = f"docs/errors.md#{found[0].replace('.', '')}"
    for title, text in {**told(found[0]), "more": page}.items():
        console.print(f"  [dim]{title + ':':<8}[/dim]{escape(text)}", soft_wrap=True)


def _known(stated: str) -> str:
    code = stated.strip("[] ")
    if code not in catalogue():
        near = difflib.get_close_matches(code.lower(), catalogue(), n=1, cutoff=0.5)
        instead = f"did you mean {near[0]}?" if near else "`gpu-clusters explain` lists all"
        raise UsageError(f"no error has the code {stated!r}; {instead}", "command.unknown-code")
    return code
