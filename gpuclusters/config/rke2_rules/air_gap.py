"""Row 43: nothing is pulled from where nobody gets to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuclusters.config.charts import FileChart
from gpuclusters.config.fault import NOTHING, finding, show
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.rke2 import RELEASES, DownloadedArtifacts, LocalArtifacts
from gpuclusters.config.rke2_cluster import NoMetrics, OperatorDriver, RancherMonitoring, Rke2Config
from gpuclusters.config.rke2_plan import images
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding, Path
from gpuclusters.gpu_operator.values import registries
from gpuclusters.rke2.host_config import Cni

_ANY = "*"


@rule(43, "rke2.air-gap-release")
def rke2_comes_from_the_closed_network(config: Rke2Config) -> Iterable[Finding]:
    if not config.air_gap:
        return
    if isinstance(config.artifacts, DownloadedArtifacts):
        if config.artifacts.url == RELEASES:
            yield finding(
                ("artifacts", "url"),
                "is on the internet, and air-gap is true",
                show(config.artifacts.url),
                "write the address of your mirror, or artifacts.source: folder",
            )
        return
    yield from _images(config, config.artifacts)


def _images(config: Rke2Config, artifacts: LocalArtifacts) -> Iterator[Finding]:
    """An archive of all images has Canal; for another CNI its own has to come along."""
    cni = Cni(config.cni.kind)
    whole = "rke2-images.linux-amd64.tar.zst"
    core = "rke2-images-core.linux-amd64.tar.zst"
    names = set(artifacts.images)
    if whole not in names and core not in names:
        wanted = whole if cni is Cni.CANAL else core
        yield finding(
            ("artifacts", "images"),
            "have no archive with RKE2's own images",
            show(list(artifacts.images)),
            f"add {wanted}",
        )
    if cni.images not in names and not (whole in names and cni is Cni.CANAL):
        yield finding(
            ("artifacts", "images"),
            f"have no archive with {cni}: every node would stay NotReady",
            show(list(artifacts.images)),
            f"add {cni.images}",
        )


@rule(43, "rke2.air-gap-chart")
def charts_come_from_the_closed_network(config: Rke2Config) -> Iterable[Finding]:
    if not config.air_gap or isinstance(config.hosts, LabHosts):
        return
    charts: list[tuple[Path, object]] = [(("operator", "chart"), config.operator.chart)]
    if not isinstance(config.metrics, NoMetrics):
        charts.append((("metrics", "chart"), config.metrics.chart))
    if isinstance(config.metrics, RancherMonitoring):
        charts.append((("metrics", "crd-chart"), config.metrics.crd_chart))
    for path, chart in charts:
        if isinstance(chart, FileChart) or getattr(chart, "repository", None) is not None:
            continue
        yield finding(
            path,
            "is fetched from the internet, and air-gap is true",
            NOTHING if chart is None else '"registry"',
            "write {source: file, path: charts/….tgz, sha256: …}, or repository: with that of your own",
        )


@rule(43, "rke2.air-gap-image", each=["pools"])
def images_come_from_the_closed_network(config: Rke2Config) -> Iterable[Finding]:
    if not config.air_gap or _ANY in config.mirrors:
        return
    wanted = images(config)
    for registry in registries(wanted):
        if registry not in config.mirrors:
            yield finding(
                ("mirrors", registry),
                "is missing, and air-gap is true",
                NOTHING,
                f"write a mirror for it, or for {_ANY}; it must have "
                f"{', '.join(one.partition('/')[2] for one in wanted if one.startswith(f'{registry}/'))}",
            )


@rule(43, "rke2.air-gap-packages")
def driver_containers_find_packages(config: Rke2Config) -> Iterable[Finding]:
    if (
        config.air_gap
        and isinstance(config.driver, OperatorDriver)
        and config.driver.package_mirror is None
    ):
        yield finding(
            ("driver", "package-mirror"),
            "is missing, and air-gap is true: the driver container finds no headers of the kernel",
            NOTHING,
            "write the ConfigMap with your package sources, or driver.source: host or precompiled",
        )
