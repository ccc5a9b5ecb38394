"""The policy rules, in the order of their weight; docs/policy has a page for each."""

from __future__ import annotations

from gpuclusters.policy.lifetime import (
    ProtectionParameters,
    spot_servers,
    stateful_delete,
    unprotected_partitions,
)
from gpuclusters.policy.money import BudgetParameters, over_budget
from gpuclusters.policy.passthrough import host_driver, shared_iommu_group
from gpuclusters.policy.pinned import PinParameters, unpinned
from gpuclusters.policy.reach import FirewallParameters, host_key, open_firewall
from gpuclusters.policy.rule import Rule, Scope, Severity, each
from gpuclusters.policy.sharing import shared_gpus

BUDGET = "budget"
"""Its finding is told with the money, not with the other rules."""

RULES: tuple[Rule, ...] = (
    Rule(
        "host-driver-on-passthrough", Severity.MANDATORY,
        "no NVIDIA driver on machines that pass their GPUs to VMs", Scope.STACK, host_driver,
    ),
    Rule(
        "shared-iommu-group", Severity.MANDATORY,
        "tenants get no GPUs that the IOMMU cannot keep apart", Scope.STACK, shared_iommu_group,
    ),
    Rule(
        "time-slicing-across-tenants", Severity.MANDATORY,
        "tenants do not share a GPU by time or by MPS", Scope.STACK, shared_gpus,
    ),
    Rule(
        "host-key", Severity.MANDATORY,
        "every machine proves who it is", Scope.RESOURCE, each(host_key),
    ),
    Rule(
        "open-firewall", Severity.MANDATORY,
        "no way in from everywhere", Scope.RESOURCE, each(open_firewall), FirewallParameters(),
    ),
    Rule(
        "spot-control-plane", Severity.MANDATORY,
        "no control plane on machines that can be taken away", Scope.RESOURCE, each(spot_servers),
    ),
    Rule(
        "stateful-delete", Severity.MANDATORY,
        "what cannot be made again is not deleted by the way", Scope.CHANGE, stateful_delete,
    ),
    Rule(
        BUDGET, Severity.MANDATORY,
        "the stack costs no more than it may", Scope.STACK, over_budget, BudgetParameters(),
    ),
    Rule(
        "unpinned", Severity.ADVISORY,
        "charts, images and drivers are pinned", Scope.RESOURCE, each(unpinned), PinParameters(),
    ),
    Rule(
        "partition-protect", Severity.ADVISORY,
        "partitions of stacks that matter are protected", Scope.RESOURCE,
        each(unprotected_partitions), ProtectionParameters(),
    ),
)  # fmt: skip
