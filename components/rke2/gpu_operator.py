"""The NVIDIA GPU Operator in a cluster: looked at first, definitions before the release, release by Helm.

Owns: the namespace with its Pod Security label, the chart's CustomResourceDefinitions, the ConfigMaps
that operands read, the Helm release. Deliberately does not own: the RuntimeClass `nvidia`, which RKE2's own
chart and the operator both write (a third would be refused as existing, and goes with the operator anyway);
what makes GPUs ready (`GpuReadiness`); how they are shared (`GpuSharing`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace
from pulumi_kubernetes.helm.v3 import Release
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from components.chart import Chart
from gpuclusters.gpu_operator import objects
from gpuclusters.gpu_operator import preflight as gpu_operator_preflight
from gpuclusters.gpu_operator.resource import GpuOperatorCrds, GpuOperatorPreflight

TIMEOUT_SECONDS = 900
"""Helm waits for the operator and for node feature discovery; not for operands, whose driver takes longer."""
_POD_SECURITY = "pod-security.kubernetes.io"


@dataclass(frozen=True, kw_only=True)
class GpuOperatorArgs:
    """Which chart, with which values, for which nodes."""

    cluster: str
    kubeconfig: pulumi.Input[str]
    chart: Chart
    values: Mapping[str, Any]
    """The chart's values as they are; nothing is taken out. The names of `configs` are added."""
    nodes: Sequence[str]
    """Names of the nodes that must get GPUs; looked at before anything is installed."""
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """ConfigMaps by operand: `device-plugin`, `dcgm-metrics` (key `dcgm-metrics.csv`), `mig-parted` (key
    `config.yaml`)."""
    chart_sha256: str = ""
    """What an archive must be."""
    namespace: str = objects.NAMESPACE
    timeout_seconds: int = TIMEOUT_SECONDS
    retain: bool = False
    """Leave the release in the cluster when it leaves the stack, as before the cluster itself goes."""
    requires: Sequence[pulumi.Resource] = ()
    """What must be there first: nodes with their drivers, definitions of monitoring."""


class GpuOperator(pulumi.ComponentResource):
    """Owns the release. That GPUs work is another resource's word."""

    ready: Sequence[pulumi.Resource]
    """What to depend on: the operator runs, with its policy."""
    release: Release
    triggers: Sequence[str]
    """Changes whenever something else is installed: for what has to look again then."""

    def __init__(
        self, name: str, args: GpuOperatorArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gpu-clusters:rke2:GpuOperator", name, None, opts)
        if empty := objects.nulls(args.values):
            raise ValueError(
                f"{', '.join(empty)}: null is no value here; leave the key out to have the default"
            )
        values = objects.with_configs(args.values, args.configs)
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
        content = args.chart.content
        self.triggers = [args.chart.version or content, digest]
        preflight = self._preflight(name, args, values, digest)
        namespace = Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(
                name=args.namespace,
                # Under the CIS profile every namespace is restricted unless it says otherwise.
                labels={
                    f"{_POD_SECURITY}/{mode}": "privileged" for mode in ("enforce", "audit", "warn")
                },
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[preflight]),
        )
        definitions = GpuOperatorCrds(
            f"{name}-crds",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            reference=args.chart.reference,
            version=args.chart.version or "",
            repository=args.chart.repository or "",
            content=content,
            sha256=args.chart_sha256,
            with_nfd=_with_nfd(values),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[preflight]),
        )
        configs = [
            self._config(name, config, data, namespace) for config, data in args.configs.items()
        ]
        self.release = self._release(name, args, values, namespace, [definitions, *configs])
        self.ready = [self.release]
        self.register_outputs({})

    def _preflight(
        self, name: str, args: GpuOperatorArgs, values: Mapping[str, Any], digest: str
    ) -> GpuOperatorPreflight:
        operands, workers = gpu_operator_preflight.tolerations(values)
        return GpuOperatorPreflight(
            f"{name}-preflight",
            cluster=args.cluster,
            kubeconfig=args.kubeconfig,
            version=args.chart.release,
            nodes=sorted(args.nodes),
            namespace=args.namespace,
            with_nfd=_with_nfd(values),
            cdi=bool((values.get("cdi") or {}).get("enabled", True)),
            tolerations=operands,
            nfd_tolerations=workers,
            values_digest=digest,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.requires)),
        )

    def _config(
        self, name: str, config: str, data: Mapping[str, str], namespace: Namespace
    ) -> ConfigMap:
        return ConfigMap(
            f"{name}-{config}",
            metadata=ObjectMetaArgs(
                name=objects.config_map_name(config, data),
                namespace=namespace.metadata.name,
            ),
            data=dict(data),
            # Pods that still mount the old one go on; it goes when the release names the new one.
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _release(
        self,
        name: str,
        args: GpuOperatorArgs,
        values: Mapping[str, Any],
        namespace: Namespace,
        after: Sequence[pulumi.Resource],
    ) -> Release:
        seconds = f"{args.timeout_seconds}s"
        return Release(
            f"{name}-release",
            # A generated name would be another one after each replacement.
            name=objects.RELEASE,
            chart=args.chart.reference,
            version=args.chart.version,
            repository_opts=args.chart.repository_options,
            namespace=namespace.metadata.name,
            values=dict(values),
            timeout=args.timeout_seconds,
            skip_crds=True,
            # Purging a failed installation would take its logs along, and drivers that are being built.
            atomic=False,
            cleanup_on_fail=False,
            max_history=5,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                # Two of them collide on what is cluster-scoped.
                delete_before_replace=True,
                retain_on_delete=args.retain,
                custom_timeouts=pulumi.CustomTimeouts(
                    create=seconds, update=seconds, delete=seconds
                ),
            ),
        )


def _with_nfd(values: Mapping[str, Any]) -> bool:
    return bool((values.get("nfd") or {}).get("enabled", True))
