"""The runtime class by which a pod becomes a virtual machine with GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs
from pulumi_kubernetes.node.v1 import OverheadArgs, RuntimeClass, SchedulingArgs

from gpuclusters.tenancy.model import HUGE_PAGES


@dataclass(frozen=True, kw_only=True)
class KataRuntimeArgs:
    """Which runtime, and what a VM costs beside its containers."""

    runtime_class: str
    """Name of the RuntimeClass and of containerd's handler."""
    overhead_cpu: str
    overhead_memory: str
    """Counted by the scheduler and by quotas for every pod, beside what its containers ask for."""
    overhead_huge_pages: str | None = None
    """Huge pages of 1 GiB that a VM has beside those of its containers; None if its memory is of none."""
    node_selector: Mapping[str, str]


class KataRuntime(pulumi.ComponentResource):
    """Owns the RuntimeClass. The handler behind it is installed by `KataDeploy`."""

    runtime_class: pulumi.Output[str]

    def __init__(
        self, name: str, args: KataRuntimeArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:caas:KataRuntime", name, None, opts)
        made = RuntimeClass(
            f"{name}-runtime-class",
            metadata=ObjectMetaArgs(name=args.runtime_class),
            handler=args.runtime_class,
            overhead=OverheadArgs(
                pod_fixed={
                    "cpu": args.overhead_cpu,
                    "memory": args.overhead_memory,
                    **({HUGE_PAGES: args.overhead_huge_pages} if args.overhead_huge_pages else {}),
                }
            ),
            scheduling=SchedulingArgs(node_selector=dict(args.node_selector))
            if args.node_selector
            else None,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.runtime_class = made.metadata.name
        self.register_outputs({"runtime_class": self.runtime_class})
