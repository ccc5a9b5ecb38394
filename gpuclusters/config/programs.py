"""The settings of the programs in the cluster, as `caas.settings` reads them, from a configuration."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Any

import yaml

from caas import settings
from gpuclusters.config.caas import CaasConfig, GatewayExposure, IngressExposure
from gpuclusters.config.plan import CaasPlan, NodePlan
from gpuclusters.lease.board import Limits
from gpuclusters.lease.firmware import Golden

_KNOB_WORDS = {
    "ecc": ("disabled", "enabled"),
    "mig": ("disabled", "enabled"),
    "cc": ("off", "on"),
    "ppcie": ("off", "on"),
}
"""How `nvidia_gpu_tools.py` calls a knob that is off and one that is on."""

LAB_IMAGE = "gpu-clusters/caas:lab"
"""What pods of the programs name in the lab; its kubelets run the checkout itself for it."""


def image(config: CaasConfig) -> str:
    return config.programs.image or LAB_IMAGE


def settings_file(
    config: CaasConfig,
    plan: CaasPlan,
    *,
    hosts: Mapping[str, Mapping[str, Any]],
    issuer: str,
    golden_firmware: Mapping[str, Sequence[str]],
    cuts: Mapping[str, Sequence[int] | None] | None = None,
    issuer_keys: Mapping[str, str] | None = None,
) -> str:
    """The whole file, as YAML.

    `hosts`: by node `address`, `port`, `user`, `host_key` of the machine, and its `bmc` or None;
    `golden_firmware`: accepted versions by prefix of the inventory item; `cuts`: by node the partitions into
    which its board was really cut; `issuer_keys`: `url` and `ca_certificate`, where pods need others.
    """
    leases, api = config.leases, config.api
    knobs, deadlines = leases.golden_firmware.knobs.model_dump(), leases.deadlines.model_dump()
    made = settings.Settings(
        cluster=config.name,
        namespace=config.programs.namespace,
        gpu_resource=config.device_access.resource_name,
        huge_pages=config.kata.huge_pages,
        cdi_kind=config.device_access.cdi_kind,
        runtime_class=config.kata.runtime_class,
        recycle_policy=leases.recycle_policy,
        phases=Limits(**{key.removesuffix("_seconds"): value for key, value in deadlines.items()}),
        start_deadline_seconds=plan.boot.pod_start_deadline,
        hosts=tuple(
            _host(config, plan, node, hosts[node.name], (cuts or {}).get(node.name))
            for node in plan.nodes
        ),
        golden_firmware=Golden(
            versions={item: tuple(versions) for item, versions in golden_firmware.items()},
            knobs={name: _KNOB_WORDS[name][wanted] for name, wanted in knobs.items()},
        ),
        network=plan.network,
        on_demand=plan.on_demand,
        api=settings.Api(
            issuer=issuer,
            jwks_url=issuer_keys["url"] if issuer_keys else api.jwks_url,
            ca_certificate=issuer_keys["ca_certificate"] if issuer_keys else None,
            **api.model_dump(
                include={*settings.Api.model_fields} - {"issuer", "jwks_url", "proxies"}
            ),
            proxies=_proxies(config),
            max_body_bytes=api.max_body_kib * 1024,
        ),
    )
    return yaml.safe_dump(made.document(), sort_keys=False, width=110)


def _proxies(config: CaasConfig) -> tuple[IPv4Network | IPv6Network, ...]:
    if config.api.proxies:
        return config.api.proxies
    if isinstance(config.api.exposure, IngressExposure | GatewayExposure):
        # Their controllers run as pods, with the network of pods or of their node.
        return (config.kubernetes.pod_cidr, *config.network.node_cidrs)
    return ()


def _host(
    config: CaasConfig,
    plan: CaasPlan,
    node: NodePlan,
    machine: Mapping[str, Any],
    cut: Sequence[int] | None,
) -> settings.Host:
    bmc = machine["bmc"]
    planned = tuple(partition.id for partition in node.partitions)
    reached = {key: machine[key] for key in ("address", "port", "user", "host_key")}
    if config.leases.user is not None:
        reached["user"] = config.leases.user
    return settings.Host(
        name=node.name,
        **reached,
        baseboard=plan.preset.baseboard,
        table=config.own_table,
        gpus=tuple(
            settings.Gpu(module=module, pci=pci, device=str(module))
            for module, pci in sorted(node.board.gpus.items())
        ),
        partitions=tuple(sorted(map(int, cut))) if cut else planned,
        declared_layout=node.declared,
        fabric_manager=plan.fabric_manager_host,
        bmc=settings.Bmc.model_validate(bmc) if bmc else None,
    )
