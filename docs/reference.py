"""What the site shows of the code: codes, keys, commands, tables. A page asks by `<!-- made: codes -->`.

Nothing of it is committed. An extension of Sphinx: `make docs` puts it into the pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
import yaml
from sphinx.application import Sphinx
from typer.core import TyperGroup

from gpuclusters.cli import explain
from gpuclusters.cli.help import EXAMPLES, PROGRAM
from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.config import keys
from gpuclusters.config.stack import ClusterType
from gpuclusters.core.codes import Code
from gpuclusters.fabric.answers import CODES, Action
from gpuclusters.gpu_operator import mig_layout
from gpuclusters.metrics import alerts, counters

FOLDER = Path(__file__).parent
_PLACE = re.compile(r"<!-- made: (?P<name>[a-z0-9-]+) -->")


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table of Markdown."""
    lines = [heads, ["---" for _ in heads], *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
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


def _commands() -> str:
    """Every command of the program with its options."""
    lines: list[str] = []
    panel = ""
    for path, command in commands():
        depth = len(path.split())
        if depth == 1 and command.rich_help_panel != panel:
            panel = command.rich_help_panel
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


_STEPS = {
    Action.SUCCEED: "is success",
    Action.RETRY: "asked again",
    Action.LOOK: "the table is looked at: success if it is so",
    Action.FAIL: "the step fails",
    Action.QUARANTINE: "the step fails; GPUs to quarantine",
}


def _answers() -> str:
    rows = (
        (number, number & 0xFF, code.meaning, _STEPS[code.action], code.remedy)
        for number, code in CODES.items()
    )
    return table(("Code", "Exit", "Meaning", "What a step does", "What you do"), rows)


def _metrics() -> str:
    """Of the programs in a caas cluster."""
    text = (FOLDER.parent / "caas" / "metrics.yaml").read_text(encoding="utf-8")
    rows = (
        (f"`gpu_clusters_{name}`", ", ".join(one.get("labels", ())), one["says"])
        for program in yaml.safe_load(text).values()
        for name, one in program.items()
    )
    return table(("Metric", "Labels", "Meaning"), rows)


def _counters() -> str:
    rows = ((f"`{name}`", one.help) for name, one in counters.table().extra.items())
    return table(("Counter", "Meaning"), rows)


def _xids() -> str:
    rows = ((n, urgency, xid.meaning, xid.do) for n, (urgency, xid) in alerts.xids().items())
    return table(("XID", "Leads to", "Meaning", "Do"), rows)


def _operators() -> str:
    known = rke2_matrix.operators()
    rows = (
        (
            ", ".join(v for v in known.releases if rke2_matrix.operator_major(v) == name),
            one.status,
            " to ".join(one.kubernetes),
            ", ".join(one.operating_systems)
            + (f"; by SUSE: {', '.join(one.partner)}" if one.partner else ""),
            ", ".join(one.drivers),
        )
        for name, one in known.majors.items()
    )
    return table(("Releases", "Support", "Kubernetes", "Operating systems", "Drivers"), rows)


def _branches() -> str:
    known = rke2_matrix.matrix()
    rows = (
        (
            number,
            one.newest,
            "yes" if one.long else "",
            one.end,
            one.oldest,
            max(major for major, cuda in known.cuda.items() if cuda.branch <= number),
        )
        for number, one in known.drivers.items()
    )
    heads = ("Branch", "Newest known", "Long support", "Fixes until", "First GPUs", "Newest CUDA")
    return table(heads, rows)


def _products() -> str:
    rows = (
        (
            f"`{key}`",
            one.name,
            one.architecture,
            one.memory_gib,
            f"{one.bf16_tflops:g}",
            ", ".join(_profiles(key)) or "none",
        )
        for key, one in gpu_products.table().products.items()
    )
    return table(("Product", "Name", "Generation", "GiB", "TFLOPS", "MIG"), rows)


def _profiles(product: str) -> Iterator[str]:
    """Every MIG profile, with how many of it alone fit."""
    if found := mig_layout.family(product):
        yield from (f"{name} × {count}" for name, (_, _, count) in found.profiles.items())
        yield from (f"{name} × 1" for name in found.single)


def _codes() -> str:
    paragraphs = []
    for area, found in groupby(explain.catalogue(), explain.area):
        paragraphs += [f"## {area}", *(part for code in found for part in _code(code))]
    return "\n\n".join(paragraphs)


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


def _keys(section: str) -> str:
    """Every key of a section, one table for each mapping."""
    heads = ("Key", "Value", "Default", "Meaning")
    parts: list[str] = []
    for one in keys.mappings(section):
        rows = ((f"`{k.name}`", k.values, _literal(k.default), k.meaning) for k in one.keys)
        titles = ", ".join(f"`{path}`" for path in one.paths)
        parts += [f"### {titles}", one.meaning, table(heads, rows)]
    return "\n\n".join(parts)


def _literal(default: str) -> str:
    return default if default in keys.NO_DEFAULT else f"`{default}`"


def _attacks() -> str:
    from tests.docs import attacks

    return attacks.render(attacks.attacks())


BLOCKS: Mapping[str, Callable[[], str]] = {
    "answers": _answers,
    "attacks": _attacks,
    "branches": _branches,
    "codes": _codes,
    "commands": _commands,
    "counters": _counters,
    "metrics": _metrics,
    "operators": _operators,
    "products": _products,
    "xids": _xids,
    **{f"keys-{kind.value}": partial(_keys, kind.value) for kind in ClusterType},
}
"""What there is, by the name that a page asks by."""


def filled(page: str) -> str:
    """A page with what it asks for.

    Raises:
        KeyError: it asks for something that there is not.
    """
    return _PLACE.sub(lambda found: BLOCKS[found["name"]](), page)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx, for an extension."""

    def read(_: Sphinx, __: str, source: list[str]) -> None:
        source[0] = filled(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
