"""Reads the configuration from Pulumi: the chosen section, and what its cluster type needs beside it."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import config as runtime_config

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import SECRET_KEYS, ClusterConfig, placeholders, uses_lab
from gpuclusters.config.fault import finding, lines, show, told
from gpuclusters.config.inventory import Inventory, InventoryError, lab_folder, read_inventory
from gpuclusters.config.kubernetes import Chart, FileChart
from gpuclusters.config.rke2_cluster import NoMetrics, Rke2Config
from gpuclusters.config.secrets import (
    ConfigError,
    Secrets,
    lab_fault,
    plain_secrets,
    read,
    unresolved,
    unused,
)
from gpuclusters.config.stack import NAMESPACE, ClusterType, parse
from gpuclusters.core.finding import Finding
from gpuclusters.core.finding import Path as Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    cluster_type: ClusterType
    section: ClusterConfig
    """The configuration of the chosen cluster type."""
    secrets: Secrets
    """Of the same type."""
    warnings: tuple[Finding, ...]
    """What works but will hurt; already said in Pulumi's log."""


def load(project: Path | None = None) -> Loaded:
    """The configuration of the current stack in a project, by default in the current folder."""
    folder = project or Path.cwd()
    file = folder / f"Pulumi.{pulumi.get_stack()}.yaml"
    parsed = parse(_document())
    if isinstance(parsed, list):
        raise ConfigError(file, [*parsed, *plain_secrets()])
    config = parsed.section
    charts = chart_faults(config, folder)
    if charts:
        raise ConfigError(file, charts)
    kind = parsed.cluster_type.value
    refused = _refused_placeholders(file, kind, placeholders(config))
    inventory = _lab(file, kind, folder) if uses_lab(config) else None
    try:
        secrets = read(config, inventory, file)
    except InventoryError as error:
        raise ConfigError(file, [unresolved(kind, error)]) from error
    except ConfigError as error:
        raise ConfigError(file, [*refused, *error.findings]) from error
    if refused:
        raise ConfigError(file, refused)
    warnings = (*parsed.warnings, *unused(config))
    for warning in warnings:
        pulumi.log.warn(told(file, warning))
    return Loaded(
        cluster_type=parsed.cluster_type, section=config, secrets=secrets, warnings=warnings
    )


def _refused_placeholders(file: Path, kind: str, found: Sequence[Finding]) -> list[Finding]:
    """With their whole paths; none in a preview, which warns of them."""
    named = [replace(one, path=(kind, *one.path)) for one in found]
    if not pulumi.runtime.is_dry_run():
        return named
    for line in lines(file, named):
        pulumi.log.warn(line)
    return []


def _document() -> dict[str, Any]:
    """All keys of this program that are no secrets, parsed."""
    known = {**runtime_config.get_config_env(), **runtime_config.CONFIG.get()}
    document: dict[str, Any] = {}
    for full_key, text in known.items():
        namespace, _, key = full_key.partition(":")
        if namespace != NAMESPACE or key in SECRET_KEYS:
            continue
        if runtime_config.is_config_secret(full_key):
            # As it looks in the file, where `parse` refuses it without showing what is in it.
            document[key] = {"secure": ""}
        else:
            document[key] = _value(text)
    return document


def _value(text: Any) -> Any:
    """Pulumi hands objects over as JSON, everything else as text."""
    if isinstance(text, str) and text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _lab(file: Path, kind: str, project: Path) -> Inventory | None:
    """The running lab; None in a preview if it does not run."""
    folder = lab_folder(project)
    try:
        inventory = read_inventory(folder)
    except InventoryError as error:
        raise ConfigError(file, [unresolved(kind, error)]) from error
    if inventory is None and not pulumi.runtime.is_dry_run():
        raise ConfigError(file, [lab_fault(kind, "not-running", folder=folder)])
    return inventory


def chart_faults(config: ClusterConfig, project: Path) -> list[Finding]:
    """What is wrong with the archives that the configuration names, from the project's folder."""
    code, found = "config.chart-file", []
    for path, chart in _charts(config):
        if not isinstance(chart, FileChart):
            continue
        try:
            with (project / chart.path).open("rb") as archive:
                digest = hashlib.file_digest(archive, "sha256").hexdigest()
        except OSError as error:
            where, why = (*path, "path"), (error.strerror or str(error)).lower()
            found.append(finding(code, where, show(chart.path), "unreadable", why=why))
            continue
        if digest != chart.sha256:
            where, got = (*path, "sha256"), show(chart.sha256)
            found.append(finding(code, where, got, "checksum", path=chart.path, digest=digest))
    return found


def _charts(config: ClusterConfig) -> Iterator[tuple[Key, Chart | None]]:
    if isinstance(config, Rke2Config):
        yield ("rke2", "operator", "chart"), config.operator.chart
        if not isinstance(config.metrics, NoMetrics):
            yield ("rke2", "metrics", "chart"), config.metrics.chart
    elif isinstance(config, CaasConfig):
        yield ("caas", "kata", "chart"), config.kata.chart
        yield ("caas", "storage", "csi-driver-chart"), config.storage.csi_driver_chart
