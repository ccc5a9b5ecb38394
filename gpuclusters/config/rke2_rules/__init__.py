"""The rules of an `rke2` cluster: what must hold together although each value alone is fine.

Rows are those of the table in docs/rke2.md.
"""

from gpuclusters.config.rke2_rules import access, driver, gpus, machines, operator
from gpuclusters.config.rules.rule import of

RKE2_RULES = of(machines, driver, operator, gpus, access)

__all__ = ["RKE2_RULES"]
