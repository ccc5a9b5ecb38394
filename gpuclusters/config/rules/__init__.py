"""The rules: what must hold together although each value alone is fine.

Rows are those of the table of failures in docs/configuration.md. A rule is a pure function over the whole
section, and the code with which it is registered says in `core/codes` what it asks for.
"""

from gpuclusters.config.rules import (
    cluster,
    device,
    exposure,
    fabric,
    handover,
    machine,
    network,
    operator,
    preparation,
    rke2,
    rke2_servers,
    runtime,
    service_vm,
    service_vm_parts,
    storage,
    tenant,
    versions,
    workload,
)
from gpuclusters.config.rules.rule import Rule, of

CAAS_RULES = of(
    cluster,
    fabric,
    versions,
    service_vm,
    service_vm_parts,
    storage,
    runtime,
    operator,
    device,
    tenant,
    workload,
    network,
    machine,
    preparation,
    handover,
    exposure,
    rke2,
    rke2_servers,
)

__all__ = ["CAAS_RULES", "Rule"]
