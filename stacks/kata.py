"""From the configuration to the components of Kata and of tenants' storage; wiring only."""

import hashlib
from collections.abc import Mapping, Sequence

import pulumi
from pulumi_kubernetes.node.v1 import OverheadArgs, RuntimeClass, SchedulingArgs

from components import helm
from components.caas.kata import KataDeploy
from components.caas.storage import TenantStorage
from components.host_connection import HostConnection
from gpuclusters.boot.guest_profile import GUEST_BASE_MIB, install_at_once, install_timeout_seconds
from gpuclusters.compat.versions import KATA_GUEST_DRIVERS
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.hosts import LabHosts
from gpuclusters.config.kubernetes import NoChart
from gpuclusters.config.nodes import GuestImage
from gpuclusters.config.plan import CaasPlan, TenantPlan, guest_driver
from gpuclusters.core import quantity, scripts
from gpuclusters.core.model import merged
from gpuclusters.kata import model as kata_model
from gpuclusters.kata.model import (
    KUBELET_ROOT,
    KUBELET_ROOTS,
    PASSTHROUGH,
    WORKLOAD_LABEL,
    ShimConfiguration,
)
from gpuclusters.tenancy.model import CSI_DRIVER, HUGE_PAGES, Mounter, TenantVolume
from stacks import charts

_CONTAINERD = ("/etc/containerd", "/var/lib/rancher", "/opt/kata/containerd")
"""Where kata-deploy tells containerd of its handlers, by distribution."""
_CSI_CHARTS = "https://raw.githubusercontent.com/kubernetes-csi/csi-driver-nfs/master/charts"
_CSI_CHART = "csi-driver-nfs"


def runtime(config: CaasConfig, opts: pulumi.ResourceOptions | None = None) -> RuntimeClass:
    """The class of containerd's handler: known at preview, and there for longer than the chart.

    Its overhead is what a VM has beside its containers: counted for every pod by the scheduler and by quotas.
    """
    kata, overhead = config.kata, config.kata.overhead
    fixed = {
        "cpu": quantity.cpu(overhead.cpu_millicores),
        "memory": quantity.memory(overhead.memory_mib),
    }
    if kata.huge_pages:
        fixed[HUGE_PAGES] = quantity.memory(GUEST_BASE_MIB)
    selector = dict(kata.node_selector)
    return RuntimeClass(
        "kata-runtime-class",
        metadata={"name": kata.runtime_class},
        handler=kata.runtime_class,
        overhead=OverheadArgs(pod_fixed=fixed),
        scheduling=SchedulingArgs(node_selector=selector) if selector else None,
        opts=opts,
    )


def node_labels(config: CaasConfig) -> Mapping[str, str]:
    """What every node is labelled with, unless a GPU Operator labels it with the mode of its GPUs."""
    mode = {} if config.gpu_operator else config.kata.shim.node_selector
    return {**mode, WORKLOAD_LABEL: PASSTHROUGH}


def deploy(
    config: CaasConfig,
    cluster: CaasPlan,
    hosts: Mapping[str, HostConnection],
    private_key: pulumi.Input[str] | None,
    *,
    requires: Mapping[str, Sequence[pulumi.Resource]],
    opts: pulumi.ResourceOptions,
) -> KataDeploy | None:
    """Kata on all machines, after what each `requires`; None if somebody else installs it."""
    kata = config.kata
    if isinstance(kata.chart, NoChart):
        return None
    shim = ShimConfiguration(
        shim=kata.shim,
        profile=cluster.boot,
        installation=kata.installation,
        huge_pages=kata.huge_pages,
        kubelet_root=_kubelet_root(config),
    )
    drop_in = shim.toml()
    # What Kata's own image must hold; of another only its builder knows.
    own_image = kata.guest_image is GuestImage.KATA and config.versions.kata in KATA_GUEST_DRIVERS
    values = kata_model.chart_values(
        shim=kata.shim,
        installation=kata.installation,
        distribution=config.kubernetes.distribution.value,
        drop_in=drop_in,
        snapshotter=kata.snapshotter.value if kata.snapshotter else None,
        node_selector={WORKLOAD_LABEL: PASSTHROUGH},
        at_once=install_at_once(len(hosts)),
        node_feature_discovery=kata.node_feature_discovery,
    )
    return KataDeploy(
        "kata-deploy",
        opts,
        chart=charts.chart(
            kata.chart,
            lab=isinstance(config.hosts, LabHosts),
            repository=kata_model.REPOSITORY,
            name=kata_model.RELEASE,
            version=config.versions.kata,
        ),
        values=merged(values, kata.values),
        hosts=hosts,
        private_key=private_key,
        node_labels=node_labels(config),
        verification=[
            kata.runtime_class,
            kata.installation.prefix,
            f"{shim.folder}/configuration-{kata.shim.value}.toml",
            hashlib.sha256(drop_in.encode()).hexdigest(),
            (guest_driver(config) if own_image else None) or "-",
            kata.guest_image_sha256 or "-",
            *_CONTAINERD,
        ],
        timeout_seconds=install_timeout_seconds(len(hosts)),
        requires=requires,
    )


def csi_driver(config: CaasConfig, opts: pulumi.ResourceOptions) -> pulumi.Resource | None:
    """csi-driver-nfs, where it mounts and is not there already."""
    stated = config.storage
    if stated.mounter is not Mounter.CSI or isinstance(stated.csi_driver_chart, NoChart):
        return None
    nodes = {WORKLOAD_LABEL: PASSTHROUGH}
    words = {"driver": CSI_DRIVER, "kubelet_root": _kubelet_root(config), "nodes": nodes}
    return helm.install(
        "csi-nfs-release",
        charts.chart(
            stated.csi_driver_chart,
            lab=isinstance(config.hosts, LabHosts),
            repository=_CSI_CHARTS,
            name=_CSI_CHART,
            version=stated.csi_driver_version,
        ),
        opts,
        release=_CSI_CHART,
        namespace="kube-system",
        values=scripts.manifest("tenancy/volumes.yaml", words, _CSI_CHART),
        timeout_seconds=install_timeout_seconds(len(config.nodes)),
    )


def tenant_storage(
    config: CaasConfig, tenant: TenantPlan, opts: pulumi.ResourceOptions
) -> TenantStorage | None:
    """The tenant's folders; None if it has none."""
    volumes = [
        TenantVolume(
            tenant=tenant.name,
            namespace=tenant.tenancy.namespace,
            name=volume.name,
            server=str(volume.server),
            path=volume.path,
            size_gib=volume.size_gib,
            mode=volume.mode,
        )
        for volume in tenant.stated.volumes
    ]
    if not volumes:
        return None
    name = f"{tenant.name}-storage"
    return TenantStorage(name, opts, volumes=volumes, mounter=config.storage.mounter)


def _kubelet_root(config: CaasConfig) -> str:
    distribution = config.kubernetes.distribution.value
    return config.kata.kubelet_root or KUBELET_ROOTS.get(distribution, KUBELET_ROOT)
