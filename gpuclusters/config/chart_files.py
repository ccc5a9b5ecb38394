"""Charts that lie beside the stack: the file that was checked is the file that is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path as FilePath

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.charts import Chart, FileChart
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rke2_cluster import NoMetrics, Rke2Config
from gpuclusters.core.finding import Finding, Path


def chart_faults(config: ClusterConfig, project: FilePath) -> list[Finding]:
    """What is wrong with the archives that the configuration names.

    Args:
        config: the cluster's configuration.
        project: the folder that paths begin at.
    """
    return [
        fault
        for path, chart in _named(config)
        if isinstance(chart, FileChart)
        for fault in _faults(path, chart, project)
    ]


def _named(config: ClusterConfig) -> tuple[tuple[Path, Chart | None], ...]:
    if isinstance(config, Rke2Config):
        monitoring = None if isinstance(config.metrics, NoMetrics) else config.metrics.chart
        return (
            (("rke2", "operator", "chart"), config.operator.chart),
            (("rke2", "metrics", "chart"), monitoring),
        )
    if isinstance(config, CaasConfig):
        return (
            (("caas", "kata", "chart"), config.kata.chart),
            (("caas", "storage", "csi-driver-chart"), config.storage.csi_driver_chart),
        )
    return ()


def _faults(path: Path, chart: FileChart, project: FilePath) -> list[Finding]:
    try:
        with (project / chart.path).open("rb") as archive:
            found = hashlib.file_digest(archive, "sha256").hexdigest()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return [
            finding(
                (*path, "path"),
                f"cannot be read: {reason}",
                show(chart.path),
                "put the archive there with `helm pull`",
                "config.chart-file",
            )
        ]
    if found == chart.sha256:
        return []
    return [
        finding(
            (*path, "sha256"),
            f"is not the checksum of {chart.path}, which is {found}",
            show(chart.sha256),
            "put back the right archive, or write this checksum if you trust it",
            "config.chart-file",
        )
    ]
