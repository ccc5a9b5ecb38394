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
from gpuclusters.config.rules.rule import of

RKE2_RULES = of(
    machines,
    servers,
    matrix,
    driver,
    modules,
    values,
    runtime,
    mig,
    sharing,
    security,
    air_gap,
    proof,
)

__all__ = ["RKE2_RULES"]
