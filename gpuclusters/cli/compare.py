"""`gpu-clusters compare A B`: two runs of the same proof side by side: times, cost, isolation."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpuclusters.cli import files
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.help import AsJson
from gpuclusters.config.cluster import ClusterConfig, uses_lab
from gpuclusters.config.gcp import GcpHosts, MachineKind
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.stack import SECTIONS, ClusterType
from gpuclusters.gcp.machine_types import Provisioning, attachable
from gpuclusters.proof import evidence
from gpuclusters.proof.training_times import run_of, words
from gpuclusters.review.cost import PriceTable, price_table

_SECONDS_PER_HOUR = 3600
_ISOLATION = {
    ClusterType.CAAS: "a VM for each container, an NVLink partition and a network policy for each tenant",
    ClusterType.RKE2: "namespaces and Pod Security; containers share the node's kernel",
    ClusterType.USERNETES: "an account without privileges on each host; nothing of the cluster is root there",
    ClusterType.GKE: "namespaces; Google runs the control plane; nodes have no address on the internet",
}


def setting(config: ClusterConfig) -> dict[str, Any]:
    """What evidence says of the cluster beside what was tried; `perHour` is None where nobody knows."""
    kind = next(kind for kind, one in SECTIONS.items() if isinstance(config, one.models))
    prices = price_table()
    return {
        "type": kind.value,
        "isolation": _ISOLATION[kind],
        "perHour": None if uses_lab(config) else per_hour(config, prices),
        "currency": prices.currency,
        "pricesOf": str(prices.as_of),
    }


def per_hour(config: ClusterConfig, prices: PriceTable) -> float | None:
    """List price of the machines on Google Cloud, GPUs, disks and fee included; None where one is unknown."""
    kinds: list[tuple[MachineKind, int]]
    if isinstance(config, GkeConfig):
        region, kinds = config.region, [(pool, pool.nodes) for pool in config.pools]
        parts = [prices.google_cloud.gke_cluster]
    elif isinstance(config.hosts, GcpHosts):
        region, parts = config.hosts.region, []
        kinds = [(group, len(group.machines)) for group in config.hosts.groups]
    else:
        return None
    parts += [_machine(kind, count, region, prices) for kind, count in kinds]
    known = [part for part in parts if part is not None]
    return round(sum(known), 4) if len(known) == len(parts) else None


def _machine(kind: MachineKind, count: int, region: str, prices: PriceTable) -> float | None:
    machine = prices.machine(region, kind.machine_type)
    disk = prices.disk(region, kind.disk.type)
    added = attachable(kind.gpu.product) if kind.gpu else None
    card = prices.gpu(region, added[0]) if added else 0.0
    spot = kind.provisioning is Provisioning.SPOT
    if spot or machine is None or disk is None or card is None:
        return None
    return count * (
        machine + disk * kind.disk.size_gib + card * (kind.gpu.count if kind.gpu else 0)
    )


_ROWS = {
    "cluster": "cluster",
    "type": "type",
    "at": "tried",
    "nodes": "nodes that trained",
    "gpus": "GPUs",
    "epochs": "epochs",
    "seconds": "training",
    "accuracy": "accuracy",
    "perHour": "cluster per hour",
    "trainingCost": "cost of the training",
    "pricesOf": "list prices of",
    "isolation": "isolation",
}
"""What a table says, by figure."""
Figures = Mapping[str, Any]


def command(
    one: Annotated[Path, typer.Argument(metavar="A", help="Evidence, as `verify` keeps it.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Evidence of the same proof.")],
    as_json: AsJson = False,
) -> None:
    """Two runs of the same proof side by side: times, cost, isolation.

    For example of a usernetes and a gke cluster with the same GPUs. Evidence that was altered, that does not
    hold, or of different proofs is refused.
    """
    first, second = _read(one), _read(other)
    if apart := list(differences(first, second)):
        raise UsageError(
            f"{one} and {other} are of different proofs, and their times say nothing about each other: "
            f"{'; '.join(apart)}",
            "command.different-proofs",
        )
    sides = figures(first), figures(second)
    console = Console(highlight=False)
    if as_json:
        found = {
            key: dict(zip("ab", (side[key] for side in sides), strict=True)) for key in sides[0]
        }
        console.print_json(json.dumps(found))
        return
    table = Table(title=f"the same proof, {first.get('level') or first['kind']}")
    for column in ("", escape(one.name), escape(other.name)):
        table.add_column(column, overflow="fold")
    for key, title in _ROWS.items():
        table.add_row(title, *(escape(_cell(key, side)) for side in sides))
    console.print(table)


def _read(path: Path) -> Mapping[str, Any]:
    document: Mapping[str, Any] = files.read_json(path)
    if faults := evidence.faults(document):
        raise UsageError(f"{path} {'; '.join(faults)}", "command.unreadable-file")
    return document


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """What makes two pieces of evidence be of different proofs."""
    for what in ("kind", "level", "programs", "images"):
        one, other = a.get(what), b.get(what)
        if one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            names = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
            yield f"{what} differ in {', '.join(names)}"
        else:
            yield f"{what} {one or 'none'} and {other or 'none'}"
    epochs = [run.epochs if (run := run_of(one)) else None for one in (a, b)]
    if epochs[0] != epochs[1]:
        yield f"trainings of {epochs[0] or 'no'} and {epochs[1] or 'no'} epochs"


def figures(document: Mapping[str, Any]) -> Figures:
    """One side; None where it does not tell."""
    told, training = document.get("setting") or {}, run_of(document)
    price, seconds = told.get("perHour"), training and training.seconds
    return {
        **{key: document.get(key) for key in ("cluster", "at", "level")},
        **{key: told.get(key) for key in ("type", "isolation", "perHour", "currency", "pricesOf")},
        **{
            key: getattr(training, key, None)
            for key in ("nodes", "gpus", "epochs", "seconds", "accuracy", "simulated")
        },
        # At the list prices of its day.
        "trainingCost": price * seconds / _SECONDS_PER_HOUR if price and seconds else None,
    }


def _cell(key: str, side: Figures) -> str:
    value = side[key]
    if value is None:
        return "not known"
    if key == "seconds":
        return words(value) + (" (simulated, no GPU)" if side["simulated"] else "")
    if key in ("perHour", "trainingCost"):
        return f"{value:.2f} {side['currency']}"
    return f"{value:.4f}" if key == "accuracy" else str(value)
