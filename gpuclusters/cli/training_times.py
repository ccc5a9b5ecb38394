"""`gpu-clusters training-times`: how long trainings took, by number of nodes, from their evidence."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpuclusters.cli import files
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.help import AsJson
from gpuclusters.drawing.times import times_svg
from gpuclusters.proof import evidence, training_times
from gpuclusters.proof.training_times import Run, words


def command(
    evidence: Annotated[
        list[Path] | None,
        typer.Argument(help="Files or folders of evidence, as `verify` keeps them."),
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Also draw it into this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Training time by number of nodes, beside what others measured on V100s.

    Exit code: 0, or 1 if there is no training in any of the evidence.
    """
    runs = training_times.ordered(read(evidence or [Path("evidence")]))
    known = training_times.table()
    if svg is not None:
        files.write(svg, times_svg(runs, known))
    if as_json:
        measured = known.model_dump(mode="json", by_alias=True)
        document = {"runs": [run.model_dump() for run in runs], "measured-by-others": measured}
        Console(highlight=False).print_json(json.dumps(document))
    else:
        _show(runs, Console(highlight=False))
    raise typer.Exit(0 if runs else 1)


def read(paths: Sequence[Path]) -> list[Run]:
    """The trainings in files and folders. Files of a folder that are no evidence are passed over."""
    found = []
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        for file in files:
            run = _run(file, named=not path.is_dir())
            if run is not None:
                found.append(run)
    return found


def _run(file: Path, *, named: bool) -> Run | None:
    known = files.read_json(file)
    wrong = evidence.faults(known)
    altered = [fault for fault in wrong if "altered" in fault]
    if altered or (wrong and named):
        raise UsageError(f"{file} {'; '.join(altered or wrong)}", "command.unreadable-file")
    return None if wrong else training_times.run_of(known, file.name)


def _show(runs: Sequence[Run], console: Console) -> None:
    known = training_times.table()
    table = Table(title="training time by number of nodes", title_justify="left")
    for column in ("nodes", "GPUs", "time", "accuracy", "epochs", "of", "where"):
        table.add_column(column)
    for run in runs:
        where = "simulated, no GPU" if run.simulated else run.source
        cells = [str(run.nodes), str(run.gpus), words(run.seconds), f"{run.accuracy:.4f}"]
        table.add_row(*cells, str(run.epochs), escape(run.cluster), escape(where))
    for row in known.measured:
        for name, seconds in (("Usernetes", row.usernetes), ("GKE", row.gke)):
            cells = [str(row.nodes), str(row.nodes), words(seconds), ""]
            table.add_row(*cells, str(known.epochs), name, "measured by others", style="dim")
    console.print(table)
    if not runs:
        console.print(
            "no evidence of a training was found: `gpu-clusters verify` with proof.rung: 9 makes some"
        )
    console.print(
        f"measured by others: {'; '.join(map(str, known.sources.values()))}", soft_wrap=True
    )
