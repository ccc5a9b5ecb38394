"""One board for each machine that `hosts` lists, cut as `partitions` says."""

import pulumi

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.fabric.resource import FabricPartitions
from gpuclusters.fabric.table import TABLES, Baseboard

config = pulumi.Config()
preset = PRESETS[Platform.SUPERMICRO_HGX_H100]
assert preset.baseboard in TABLES, Baseboard
for connection in config.require_object("hosts"):
    FabricPartitions(
        f"{connection['host']}-fabric",
        connection=connection,
        board="board-0",
        baseboard=preset.baseboard,
        partitions=config.require_object("partitions"),
        gpus={str(module): address for module, address in sorted(preset.gpus.items())},
        fabric_manager_host="127.0.0.1",
    )
