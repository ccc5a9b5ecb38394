"""The rules: what must hold together although each value alone is fine.

Rows are those of the table of failures in docs/configuration.md. A rule is a pure function over the whole
section, and the code with which it is registered says in `core/codes` what it asks for.
"""

from gpuclusters.config.rules import cluster, fabric, machine, tenant
from gpuclusters.config.rules.rule import Rule, of

CAAS_RULES = of(cluster, fabric, machine, tenant)

__all__ = ["CAAS_RULES", "Rule"]
