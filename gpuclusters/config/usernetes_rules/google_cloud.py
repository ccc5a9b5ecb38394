"""Row 52: Google Cloud can make the machines."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.config import gcp_rules
from gpuclusters.config.fault import Flaw, show
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.gcp_rules_machines import either
from gpuclusters.config.rules.rule import rule
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.config.usernetes_rules.network import ranges


@rule(52, needs=["hosts", "name", "network"])
def google_cloud_can_make_the_nodes(config: UsernetesConfig) -> Iterable[Flaw]:
    """What Google Cloud would refuse, or would make so that nothing works on it (docs/google-cloud.md)."""
    if isinstance(config.hosts, GcpHosts):
        yield from gcp_rules.check(config.hosts, cluster=config.name, ranges=ranges(config))


@rule(52, needs=["hosts"])
def images_are_of_ubuntu(config: UsernetesConfig) -> Iterable[Flaw]:
    """The hosts are prepared with Ubuntu's packages, and with the profiles of its AppArmor."""
    if not isinstance(config.hosts, GcpHosts):
        return
    system = config.hosts.image.system
    if system is not None and system not in gcp_rules.SYSTEMS:
        yield Flaw(
            ("hosts", "image", "system"),
            "is not one that hosts of Usernetes are prepared on",
            show(system),
            f"write {either(gcp_rules.SYSTEMS)}",
        )


RULES = (
    google_cloud_can_make_the_nodes,
    images_are_of_ubuntu,
)
