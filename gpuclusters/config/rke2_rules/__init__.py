"""The rules of an `rke2` cluster: what must hold together although each value alone is fine.

Rows are those of the table in docs/rke2.md.
"""

from gpuclusters.config.rules.rule import Rule

RKE2_RULES: tuple[Rule, ...] = ()

__all__ = ["RKE2_RULES"]
