"""The rules of a `usernetes` cluster: what must hold together although each value alone is fine.

Rows are those of the table in docs/usernetes-configuration.md. A rule is a pure function over the whole
section; which part of it must be readable for the rule to run stands in its `needs` and `each`.
"""

from gpuclusters.config.rules.rule import of
from gpuclusters.config.usernetes_rules import (
    api,
    driver,
    google_cloud,
    gpus,
    machines,
    network,
    preparation,
    training,
    versions,
)

USERNETES_RULES = of(
    machines, network, gpus, driver, versions, preparation, google_cloud, api, training
)

__all__ = ["USERNETES_RULES"]
