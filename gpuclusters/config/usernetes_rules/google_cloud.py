"""Row 52: Google Cloud can make the machines."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config import gcp_rules
from gpuclusters.config.fault import finding, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.gcp_rules_machines import either
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_rules.network import ranges
from gpuclusters.core.finding import Finding


@rule(52, "usernetes.google-cloud-refuses")
def google_cloud_can_make_the_nodes(config: UsernetesConfig) -> Iterable[Finding]:
    if isinstance(config.hosts, GcpHosts):
        yield from gcp_rules.check(config.hosts, cluster=config.name, ranges=ranges(config))


@rule(52, "usernetes.image-system")
def images_are_of_ubuntu(config: UsernetesConfig) -> Iterable[Finding]:
    if not isinstance(config.hosts, GcpHosts):
        return
    system = config.hosts.image.system
    if system is not None and system not in gcp_rules.SYSTEMS:
        yield finding(
            ("hosts", "image", "system"),
            "is not one that hosts of Usernetes are prepared on",
            show(system),
            f"write {either(gcp_rules.SYSTEMS)}",
        )
