"""The rules of a `usernetes` cluster: what must hold together although each value alone is fine.

Rows are those of the table in docs/usernetes-configuration.md.
"""

from gpuclusters.config.rules.rule import of
from gpuclusters.config.usernetes_rules import machines, network, versions

USERNETES_RULES = of(machines, network, versions)

__all__ = ["USERNETES_RULES"]
