"""What the configuration expects of each machine, for the preflight to compare with."""

from __future__ import annotations

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.nodes import Node
from gpuclusters.config.plan import board, preset, table
from gpuclusters.preflight.model import Expects, expects_of


def expects(config: CaasConfig, node: Node) -> Expects:
    """What one machine must be: its own words where it has some, else its platform's."""
    return expects_of(
        preset(config),
        board(config, node),
        memory_gib=node.memory_gib,
        huge_pages_1g=node.hugepages_gib_per_numa_node or (),
        vfio=config.device_access.vfio,
        partitions=len(table(config).partitions),
    )
