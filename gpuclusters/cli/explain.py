"""`gpu-clusters explain`: what a code means and what to do, or what a key of a stack file is."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.help import AsJson
from gpuclusters.config import keys
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


def _completed(incomplete: str) -> list[str]:
    return [one for one in (*catalogue(), *keys.paths()) if one.startswith(incomplete)]


def command(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[CODE|KEY]",
            help="A code as printed in brackets, or a key as in `rke2.operator`; else all codes.",
            autocompletion=_completed,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what an error means and what to do, or what a key of a stack file takes.

    Example: `gpu-clusters explain remote.host-key-mismatch`
    """
    console = Console(highlight=False)
    if what is None and as_json:
        _write([{"code": one, **told(one)} for one in catalogue()])
    elif what is None:
        for code, known in catalogue().items():
            line = f"{code}  [dim]{escape(known.means)}[/dim]"
            console.print(line, overflow="ellipsis", no_wrap=True)
    else:
        _explain(what.strip("[] "), console, as_json)


def _explain(name: str, console: Console, as_json: bool) -> None:
    """A name may be that of a code and that of a key: then both are told."""
    found = list(keys.about(name))
    known = name in catalogue()
    if not (found or known):
        near = difflib.get_close_matches(name.lower(), [*catalogue(), *keys.paths()], n=1)
        instead = f"did you mean {near[0]}?" if near else "`gpu-clusters explain` lists all codes"
        raise UsageError(f"{name!r} is neither a code nor a key; {instead}", "command.unknown-code")
    if as_json:
        code = {"code": name, **told(name)} if known else {"key": name}
        places = [{"paths": paths, **asdict(one)} for paths, one in found]
        _write({**code, "places": places} if places else code)
        return
    if known:
        _tell(console, name, told(name))
    for paths, one in found:
        texts = {"means": one.meaning}
        if isinstance(one, keys.Key):
            texts |= {"takes": one.values, "default": one.default}
        else:
            texts |= {key.name: f"{key.meaning} ({key.values}; {key.default})" for key in one.keys}
        _tell(console, ", ".join(paths), texts)


def _write(document: object) -> None:
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _tell(console: Console, name: str, texts: Mapping[str, str]) -> None:
    console.print(f"[bold]{escape(name)}[/bold]")
    width = max(map(len, texts)) + 2
    for title, text in texts.items():
        console.print(f"  [dim]{title + ':':<{width}}[/dim]{escape(text)}", soft_wrap=True)
