"""The rules: what must hold together although each value alone is fine.

Rows are those of the table of failures in docs/configuration.md. A rule is a pure function over the whole
section; which part of it must be readable for the rule to run stands in its `needs` and `each`.
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
    storage,
    tenant,
    versions,
    workload,
)
from gpuclusters.config.rules.rule import Rule, Severity

CAAS_RULES: tuple[Rule, ...] = (
    *cluster.RULES,
    *fabric.RULES,
    *versions.RULES,
    *service_vm.RULES,
    *storage.RULES,
    *runtime.RULES,
    *operator.RULES,
    *device.RULES,
    *tenant.RULES,
    *workload.RULES,
    *network.RULES,
    *machine.RULES,
    *preparation.RULES,
    *handover.RULES,
    *exposure.RULES,
    *rke2.RULES,
    *rke2_servers.RULES,
)

__all__ = ["CAAS_RULES", "Rule", "Severity"]
