"""docs/errors.md, and what other pages show of the command and of its tables: `python -m docs.reference`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import typer
import yaml
from typer.core import TyperGroup

from docs.blocks import fill, table
from gpuclusters.cli import explain
from gpuclusters.cli.help import EXAMPLES, PROGRAM
from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.core.codes import Code
from gpuclusters.fabric.answers import CODES, Action
from gpuclusters.gpu_operator import mig_layout
from gpuclusters.metrics import alerts, counters

FOLDER = Path(__file__).parent
ERRORS = FOLDER / "errors.md"
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


BLOCKS: Mapping[tuple[str, str], Callable[[], str]] = {
    ("cli.md", "commands"): render,
    ("fabric.md", "answers"): _answers,
    ("observability.md", "metrics"): _metrics,
    ("rke2.md", "operators"): _operators,
    ("rke2.md", "branches"): _branches,
    ("rke2.md", "products"): _products,
    ("rke2-metrics.md", "counters"): _counters,
    ("rke2-metrics.md", "xids"): _xids,
}
"""By page and name of the block: what it shows."""


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
    for (name, block), shown in BLOCKS.items():
        page = FOLDER / name
        page.write_text(fill(page, block, shown()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
