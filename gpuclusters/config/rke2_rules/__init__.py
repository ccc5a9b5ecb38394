"""The rules of an `rke2` cluster: what must hold together although each value alone is fine.

Rows are those of the table in docs/rke2.md. A rule is a pure function over the whole section; which part of
it must be readable for the rule to run stands in its `needs` and `each`.
"""

from gpuclusters.config.rke2_rules import (
    air_gap,
    driver,
    machines,
    matrix,
    mig,
    modules,
    proof,
    runtime,
    security,
    servers,
    sharing,
    values,
)
from gpuclusters.config.rules.rule import Rule

RKE2_RULES: tuple[Rule, ...] = (
    *machines.RULES,
    *servers.RULES,
    *matrix.RULES,
    *driver.RULES,
    *modules.RULES,
    *values.RULES,
    *runtime.RULES,
    *mig.RULES,
    *sharing.RULES,
    *security.RULES,
    *air_gap.RULES,
    *proof.RULES,
)

__all__ = ["RKE2_RULES"]
