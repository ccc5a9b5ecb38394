"""From the section of an `rke2` cluster to the arguments of its components. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.kubernetes import DownloadedArtifacts, Rke2Common
from gpuclusters.config.rke2_cluster import (
    CiliumCni,
    FoundCluster,
    MadeCluster,
    Mig,
    NoMetrics,
    Rke2Config,
    machine_names,
    parse_taint,
)
from gpuclusters.config.rke2_machines import (
    WHOLE_KEY,
    container_driver,
    cuts,
    driver_version,
    expected,
    gpu_pools,
    is_shared,
    mig_config,
    mig_strategy,
    plugin_config,
    system,
)
from gpuclusters.config.rke2_proof import ProofL0, ProofL1
from gpuclusters.core.model import merged
from gpuclusters.gpu_operator.preflight import asked
from gpuclusters.gpu_operator.values import OperatorSpec, Taint, references, values
from gpuclusters.metrics import counters, monitoring_stack
from gpuclusters.metrics.monitoring_stack import Monitoring
from gpuclusters.proof.checks import Level
from gpuclusters.proof.model import TESTS, ProofNode
from gpuclusters.rke2 import host_config
from gpuclusters.rke2.host_config import CONTROL_PLANE_TAINT, Cilium, Cni, Settings


def artifacts(cluster: Rke2Common) -> dict[str, Any]:
    stated = cluster.artifacts
    return {
        "source": stated.source,
        "location": stated.url if isinstance(stated, DownloadedArtifacts) else stated.folder,
        "checksum": stated.checksum,
        "images": list(stated.images),
    }


_SAME = {
    *("tls_san", "cluster_domain", "selinux", "dedicated_servers", "deny_external_ips"),
    *("system_default_registry", "etcd_snapshot_cron", "etcd_snapshot_retention", "environment"),
}
"""Keys that the section and the hosts' settings call the same."""


def shared_settings(cluster: Rke2Common, *, registration_address: str, **more: Any) -> Settings:
    """What hosts agree on in every cluster type; networks and CNI are `more`."""
    return Settings(
        registration_address=registration_address,
        cis=cluster.cis_profile,
        disabled=cluster.disabled_charts,
        registries=_mirrors(cluster),
        **cluster.model_dump(include=_SAME),
        **more,
    )


def settings(config: MadeCluster, *, registration_address: str) -> Settings:
    cni, stated = Cni(config.cni.kind), config.cni.model_dump(exclude={"kind"})
    more: dict[str, Any] = (
        # There are no VMs here whose sockets it could not see.
        {"cilium": Cilium(**stated, socket_lb_host_namespace_only=False)}
        if isinstance(config.cni, CiliumCni)
        else {"cni_values": host_config.cni_values(cni, **stated)}
    )
    return shared_settings(
        config,
        registration_address=registration_address,
        pod_cidr=config.cluster_cidr,
        service_cidr=config.service_cidr,
        cni=cni,
        **more,
    )


def _mirrors(cluster: Rke2Common) -> dict[str, Any]:
    """`registries.yaml` without passwords; empty without mirrors."""
    if not cluster.mirrors:
        return {}
    return {
        "mirrors": {
            name: {"endpoint": list(mirror.endpoints)}
            | ({"rewrite": dict(mirror.rewrite)} if mirror.rewrite else {})
            for name, mirror in cluster.mirrors.items()
        }
    }


def registries(config: MadeCluster, credentials: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """`registries.yaml` with the secret's accounts; ValueError unless these are of `registry-auth`."""
    wanted, given = set(config.registry_auth), set(credentials)
    faults = {"missing": wanted - given, "not asked for:": given - wanted}
    said = [f"{what} {', '.join(sorted(names))}" for what, names in faults.items() if names]
    if said:
        problem = f"the secret registry-credentials does not fit registry-auth: {'; '.join(said)}"
        raise ValueError(problem)
    found = _mirrors(config)
    if credentials:
        found["configs"] = {
            name: {"auth": {key: one[key] for key in ("username", "password")}}
            for name, one in credentials.items()
        }
    return found


def monitoring(config: Rke2Config) -> Monitoring:
    return Monitoring(config.metrics.kind)


def monitoring_values(config: Rke2Config) -> Mapping[str, Any]:
    """Values of the monitoring's chart beside those of `monitoring_stack`."""
    metrics = config.metrics
    if isinstance(metrics, NoMetrics):
        return {}
    spec: dict[str, Any] = {"retention": f"{metrics.retention_days}d"}
    if metrics.volume is not None:
        claim = {
            "storageClassName": metrics.volume.storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{metrics.volume.size_gib}Gi"}},
        }
        spec["storageSpec"] = {"volumeClaimTemplate": {"spec": claim}}
    return merged({"prometheus": {"prometheusSpec": spec}}, metrics.values)


def taints(config: Rke2Config) -> tuple[Taint, ...]:
    """Taints of the nodes with GPUs, each once; those of servers that carry any, too."""
    found = [taint for pool in gpu_pools(config) for taint in pool.taints]
    with_gpus = {name for pool in gpu_pools(config) for name in pool.nodes}
    if not with_gpus.isdisjoint(_dedicated(config)):
        found.append(CONTROL_PLANE_TAINT)
    return tuple(parse_taint(taint) for taint in dict.fromkeys(found))


def _dedicated(config: Rke2Config) -> tuple[str, ...]:
    """Servers that carry nothing but the cluster itself."""
    return config.servers if isinstance(config, MadeCluster) and config.dedicated_servers else ()


def has_free_node(config: Rke2Config) -> bool:
    """Whether there is a node that anything can run on."""
    closing = ("NoSchedule", "NoExecute")
    tainted = {
        name
        for pool in config.pools
        if any(taint.endswith(closing) for taint in pool.taints)
        for name in pool.nodes
    }
    closed = tainted.union(_dedicated(config))
    return not closed.issuperset(machine_names(config))


def operator_spec(config: Rke2Config) -> OperatorSpec:
    runs = [system(config, pool) for pool in gpu_pools(config)]
    return OperatorSpec(
        version=config.operator.version,
        driver=container_driver(config),
        systems=tuple(dict.fromkeys(one for one in runs if one is not None)),
        mig_strategy=mig_strategy(config).value,
        mig_reboot=isinstance(config.sharing, Mig) and config.sharing.reboot,
        taints=taints(config),
        untainted=has_free_node(config),
        node_feature_discovery=config.operator.node_feature_discovery,
        nri_plugin=config.operator.nri_plugin,
        selinux=config.selinux,
        # DCGM's diagnostics ask the one that runs on its own.
        host_engine=not isinstance(config.proof, ProofL0 | ProofL1),
        mig=isinstance(config.sharing, Mig),
        scrape_interval_seconds=getattr(config.metrics, "scrape_interval_seconds", None),
        nodes=len(machine_names(config)),
        **(_containerd(config) if isinstance(config, FoundCluster) else {}),
    )


def _containerd(config: FoundCluster) -> dict[str, Any]:
    """What the operator is told of the containerd of a cluster that is there."""
    stated = config.kubernetes
    return {"distribution": stated.distribution, "default_runtime": stated.default_runtime}


def operator_values(config: Rke2Config) -> dict[str, Any]:
    """The chart's values: what is derived, and above it what `operator.values` says."""
    found = values(operator_spec(config), monitoring_stack.operator_values(monitoring(config)))
    if plugin_config(config):
        found = merged(found, {"devicePlugin": {"config": {"default": WHOLE_KEY}}})
    return merged(found, config.operator.values)


def preflight(config: FoundCluster) -> dict[str, Any]:
    """What is looked at in a cluster that is there before the operator: inputs of its preflight."""
    return {
        "version": config.operator.version,
        "nodes": sorted(expected(config)),
        "namespace": config.operator.namespace,
        **asked(operator_values(config), distribution=config.kubernetes.distribution),
    }


def operator_configs(config: Rke2Config) -> dict[str, Mapping[str, str]]:
    """ConfigMaps that the operands read, as `GpuOperator.configs` takes them."""
    found: dict[str, Mapping[str, str]] = {}
    if plugin := plugin_config(config):
        found["device-plugin"] = plugin
    if (mig := mig_config(config)) is not None:
        found["mig-parted"] = {"config.yaml": mig}
    if not isinstance(config.metrics, NoMetrics):
        found["dcgm-metrics"] = {counters.FILE: counters.csv()}
    return found


def proof_nodes(config: Rke2Config) -> tuple[ProofNode, ...]:
    """Every node with GPUs, as a proof takes it."""
    found = expected(config)
    return tuple(
        ProofNode(
            name=name,
            resources={key: count for key, count in found[name].items() if count},
            product=pool.gpu.product if pool.gpu is not None else None,
            mig=any(cut is not None for cut in cuts(config, pool)),
            shared=is_shared(config, pool),
        )
        for pool in gpu_pools(config)
        for name in pool.nodes
        if any(found[name].values())
    )


def proof_tests(config: Rke2Config) -> dict[str, dict[str, Any]]:
    """What the level runs, by test, with the field names of the proof's inputs."""
    stated = (getattr(config.proof, test.name, None) for test in TESTS)
    return {test.name: test.model_dump() for test in stated if test is not None}


def proof_arguments(config: Rke2Config, level: Level) -> dict[str, Any]:
    """The inputs of the proof up to a level, and the arguments of its component, but the kubeconfig."""
    needed = {test.name for test in TESTS if test.level <= level}
    drivers = {driver_version(config, pool.driver) for pool in gpu_pools(config)}
    return {
        "cluster": config.name,
        "level": level.value,
        "nodes": [node.model_dump(mode="json") for node in proof_nodes(config)],
        "namespace": config.proof.namespace,
        **{name: part for name, part in proof_tests(config).items() if name in needed},
        "operator_namespace": config.operator.namespace,
        "prometheus": monitoring_stack.prometheus(monitoring(config)),
        "tolerations": list(dict.fromkeys(str(taint["key"]) for taint in taints(config))),
        # The proof fits its images to it.
        "driver": drivers.pop() if len(drivers) == 1 else None,
        "operator": config.operator.version,
        "timeout_seconds": config.timeouts.proof_seconds,
        "simulated": uses_lab(config),
    }


def images(config: Rke2Config) -> tuple[str, ...]:
    """Images of the operator and of the proof: what a mirror has to have beside RKE2's own."""
    ours = references(operator_spec(config))
    proofs = {test["image"] for test in proof_tests(config).values() if test.get("image")}
    return tuple(sorted({*ours, *proofs}))
