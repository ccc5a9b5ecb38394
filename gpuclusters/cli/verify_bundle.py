"""Evidence as files: JSON, Markdown, the digests of both; and whether such files are unaltered."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpuclusters.cli.errors import NotWrittenError, UnreadableFileError
from gpuclusters.proof import evidence
from gpuclusters.proof.evidence import Evidence, counted

_SUMS = ".sha256"


def keep(found: Evidence, folder: Path) -> Path:
    """Write the bundle; answers the JSON file.

    Raises:
        RunError: the folder cannot be written.
    """
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in {**texts, path.with_suffix(_SUMS): sums}.items():
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotWrittenError(
            f"the evidence cannot be written to {folder}: {error.strerror}"
        ) from error
    return path


def show(found: Evidence, console: Console) -> None:
    """Entries by group and outcome, every one that did not come out as it must, all remarks."""
    table = Table(title=found.title, title_justify="left")
    for column in (found.grouped_by, *(outcome.value for outcome in found.outcomes)):
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
    """Whether a file is unaltered evidence of any kind; 0 if it is, else 1.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableFileError(f"{path} cannot be read as JSON: {error}") from error
    faults = [*evidence.faults(document), *_beside(path)]
    console = Console(highlight=False)
    if as_json:
        answer = {"file": str(path), "valid": not faults, "faults": faults}
        console.print_json(json.dumps(answer))
        return 1 if faults else 0
    for fault in faults:
        console.print(f"[red]fail[/red] {escape(f'{path} {fault}')}", soft_wrap=True)
    if not faults:
        console.print(
            f"[green]ok  [/green] {escape(f'{path} shows {evidence.headline(document)}')}",
            soft_wrap=True,
        )
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
