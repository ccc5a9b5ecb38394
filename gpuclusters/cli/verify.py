"""`gpu-clusters verify`: try what the cluster's type promises, and keep the evidence."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpuclusters.cli import files, verify_caas, verify_gpus
from gpuclusters.cli.errors import wrong_option
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.cli.report import steps
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.converge import time_of_day
from gpuclusters.proof import evidence
from gpuclusters.proof.evidence import About, Evidence, counted

_SUMS = ".sha256"


def keep(found: Evidence, folder: Path) -> Path:
    """Write the bundle; answers the JSON file."""
    stamp = found.about.at.replace(":", "").replace("-", "")
    path = folder / f"{found.kind}-{found.about.cluster}-{stamp}.json"
    texts = {
        path: json.dumps(found.document(), indent=2, ensure_ascii=False) + "\n",
        path.with_suffix(".md"): found.markdown(),
    }
    # As `sha256sum --check` reads it.
    sums = "".join(
        f"{hashlib.sha256(text.encode()).hexdigest()}  {file.name}\n"
        for file, text in texts.items()
    )
    for file, text in {**texts, path.with_suffix(_SUMS): sums}.items():
        files.write(file, text, "the evidence ")
    return path


def show(found: Evidence, console: Console) -> None:
    """Entries by group and outcome, every one that did not come out as it must, all remarks."""
    table = Table(title=found.title, title_justify="left")
    for column in (found.keys[0], *(outcome.value for outcome in found.outcomes)):
        table.add_column(column)
    for group in dict.fromkeys(entry.group for entry in found.entries):
        outcomes = [entry.outcome for entry in found.entries if entry.group == group]
        table.add_row(group, *map(str, counted(outcomes, found.outcomes).values()))
    console.print(table)
    for entry in found.entries:
        if not found.is_good(entry):
            console.print(f"[red]{entry.outcome}[/red] {escape(str(entry))}", soft_wrap=True)
    for remark in found.about.remarks:
        console.print(f"note: {remark}", soft_wrap=True)


def check(path: Path, *, as_json: bool = False) -> int:
    """Whether a file is unaltered evidence of any kind; 0 if it is, else 1."""
    document = files.read_json(path)
    faults = [*evidence.faults(document), *_beside(path)]
    console = Console(highlight=False)
    if as_json:
        answer = {"file": str(path), "valid": not faults, "faults": faults}
        console.print_json(json.dumps(answer))
        return 1 if faults else 0
    lines = [f"[red]fail[/red] {escape(f'{path} {fault}')}" for fault in faults]
    if not faults:
        lines = [f"[green]ok  [/green] {escape(f'{path} shows {evidence.headline(document)}')}"]
    for line in lines:
        console.print(line, soft_wrap=True)
    return 1 if faults else 0


def _beside(path: Path) -> list[str]:
    """Files of the bundle that are there and are not what their digests say."""
    sums = path.with_suffix(_SUMS)
    if not sums.is_file():
        return []  # A JSON file may be kept alone.
    found = []
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        wanted, _, name = line.partition("  ")
        file = path.parent / Path(name).name
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() != wanted:
            found.append(f"is not the bundle's any more: {file.name} does not fit {sums.name}")
    return found


def run(
    project: Project,
    stack: str,
    *,
    folder: Path,
    kubeconfig: Path | None,
    api: str | None,
    tokens: Sequence[str],
    level: str | None = None,
    as_json: bool = False,
) -> int:
    """Attack a caas cluster, or prove the GPUs of another type's; 0 if it holds, else 1."""
    section = read_valid(project, stack).section
    _refuse_foreign(section, api=api, tokens=tokens, level=level)

    def about(api_server: str, remarks: Sequence[str]) -> About:
        return About(
            cluster=section.name,
            stack=stack,
            at=time_of_day(),
            program=version("gpu-clusters"),
            api_server=api_server,
            remarks=tuple(remarks),
        )

    found: Evidence
    with steps(Console(stderr=True, highlight=False), silent=as_json) as say:
        say(f"running the checks of {section.name}")
        if isinstance(section, Rke2Config):
            found = verify_gpus.rke2(project, section, about, kubeconfig=kubeconfig, level=level)
        elif isinstance(section, UsernetesConfig):
            found = verify_gpus.usernetes(
                project, stack, section, about, kubeconfig=kubeconfig, level=level
            )
        else:
            found = verify_caas.run(
                project, section, about, kubeconfig=kubeconfig, api=api, tokens=tokens
            )
    console = Console(highlight=False)
    path = keep(found, folder)
    if as_json:
        console.print_json(json.dumps(found.document()))
    else:
        show(found, console)
        beside = ", ".join(path.with_suffix(suffix).name for suffix in (".md", _SUMS))
        console.print(f"evidence: {path}, {beside}", soft_wrap=True)
        colour = "green" if found.holds else "red"
        console.print(f"[bold {colour}]{found.verdict}[/]", soft_wrap=True)
    return 0 if found.holds else 1


def _refuse_foreign(
    section: object, *, api: str | None, tokens: Sequence[str], level: str | None
) -> None:
    """An option of another cluster type would be ignored; that is said instead."""
    kinds = {"Rke2Config": "an rke2", "UsernetesConfig": "a usernetes"}
    kind = kinds.get(type(section).__name__)
    if kind and (api is not None or tokens):
        raise wrong_option(f"--api and --token are of caas clusters; this stack is {kind} one")
    if not kind and level is not None:
        raise wrong_option("--level is of rke2 and usernetes clusters; this stack is a caas one")
