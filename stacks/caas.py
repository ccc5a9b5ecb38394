"""Containers as a service on HGX machines: hosts, the runtime, the Tenancy API, tenants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pulumi
import yaml

from components import kubernetes_objects
from components.caas.api import (
    ApiCertificate,
    ApiExposure,
    Issuer,
    Pair,
)
from components.caas.gpu_host import GpuHost
from components.caas.programs import (
    Monitoring,
    ProgramNetwork,
    Programs,
)
from components.caas.system import System, TenanciesOnDemand
from components.caas.tenancy import TenancyApi, Tenant
from components.kubernetes_objects import after
from gpuclusters.config.caas import (
    CaasConfig,
    Exposure,
    ExternalExposure,
    GatewayExposure,
    IngressExposure,
    LoadBalancerExposure,
    ManagedCertificate,
)
from gpuclusters.config.plan import CaasPlan, TenantPlan, plan
from gpuclusters.config.programs import image, settings_file
from gpuclusters.config.secrets import CaasSecrets
from gpuclusters.lease import model as lease_resource
from gpuclusters.maintenance.resource import NodeMaintenance
from gpuclusters.tenancy import model as tenancy_resource
from gpuclusters.tenancy.programs import Place, Program, Reach
from stacks import caas_machines, kata
from stacks.hosts import connection, from_secret


@dataclass(frozen=True, kw_only=True)
class Outputs:
    kubeconfig: pulumi.Output[str]
    """Secret."""
    capacity_by_partition_size: Mapping[str, int]
    hosts: Mapping[str, Mapping[str, Any]]
    tenants: Mapping[str, Mapping[str, Any]]


def build(config: CaasConfig, secrets: CaasSecrets) -> Outputs:
    cluster = plan(config)
    machines = caas_machines.declare(config, cluster, secrets)
    hosts = machines.hosts
    kubeconfig, nodes = caas_machines.kubernetes(config, cluster, secrets, machines)
    in_cluster = kubernetes_objects.inside(
        kubeconfig,
        # Made here, its certificates are renewed now and then, and it stays the same cluster.
        identifier=None if secrets.kubeconfig is not None else config.name,
        # Settings change in place; pods carry their digest and are rolled.
        mutable_settings=True,
    )

    runtime = kata.runtime(config, in_cluster)
    installed = kata.deploy(
        config,
        cluster,
        {node.name: connection(node.name, secrets.hosts[node.name]) for node in cluster.nodes},
        secrets.ssh_private_key,
        requires=nodes,
        opts=in_cluster,
    )
    api = TenancyApi(
        "tenancy",
        in_cluster,
        custom_resource_definitions=[tenancy_resource.crd(), lease_resource.crd()],
        runtime_classes=[config.kata.runtime_class],
        runtime_selector=sorted(config.kata.node_selector),
        gpu_resource=config.device_access.resource_name,
        huge_pages=config.kata.huge_pages,
        network=cluster.network,
        controllers=config.programs.accounts.user(Program.CONTROLLERS),
    )
    system = _system(config, cluster, secrets, hosts, in_cluster)
    closed = ProgramNetwork(
        "program-network",
        in_cluster,
        system=system,
        reach=_reach(config, secrets),
        monitored=config.programs.monitoring,
        callers=_callers(config),
    )
    home = system.homes[Program.API].namespace
    exposure = config.api.exposure
    certificate = _certificate(exposure, secrets, home, in_cluster)
    balanced = exposure if isinstance(exposure, LoadBalancerExposure) else None
    programs = Programs(
        "programs",  # Programs go before Kata: its VMs hold what they lease.
        after(
            *(api, closed, certificate, runtime, installed),
            *chain.from_iterable(nodes.values()),
            # A program starts after it may do what it has to.
            system,
            opts=in_cluster,
        ),
        image=image(config),
        replicas=config.programs.replicas,
        nodes=[node.name for node in cluster.nodes],
        system=system,
        # Where nothing before it ends TLS, the API does.
        certificate=(
            certificate.secret if certificate and (balanced or exposure is None) else None
        ),
        balanced=dict(balanced.annotations) if balanced else None,
        image_pull_secret=config.programs.image_pull_secret,
    )
    if certificate is not None and isinstance(exposure, IngressExposure | GatewayExposure):
        of_ingress = isinstance(exposure, IngressExposure)
        ApiExposure(
            "api",
            after(certificate, opts=in_cluster),
            kind=exposure.kind,
            class_name=exposure.ingress_class if of_ingress else exposure.gateway_class,
            host=exposure.host,
            namespace=home,
            service=programs.api_service,
            service_port=programs.api_port,
            certificate=certificate.secret,
            annotations=exposure.annotations,
        )
    if config.programs.monitoring:
        Monitoring("monitoring", in_cluster, system=system)
    for node in cluster.nodes:
        if node.maintenance is not None:
            NodeMaintenance(
                f"{node.name}-maintenance",
                cluster=config.name,
                kubeconfig=kubeconfig,
                node=node.name,
                drain=node.maintenance.value,
                # The controllers take back what the containers had.
                opts=after(programs),
            )
    ready = after(api, programs, opts=in_cluster)
    if cluster.on_demand is not None:
        TenanciesOnDemand(
            "on-demand",
            ready,
            cluster=config.name,
            kubeconfig=kubeconfig,
            accounts=config.programs.accounts,
            declared=[tenant.name for tenant in cluster.tenants],
        )
    tenants = {
        tenant.name: Tenant(
            tenant.name,
            ready,
            cluster=config.name,
            kubeconfig=kubeconfig,
            tenancy=tenant.tenancy,
            registry_credentials=_registry_credentials(secrets, tenant),
            adopt=tenant.name in config.adopt.tenants,
        )
        for tenant in cluster.tenants
    }
    mounted = kata.csi_driver(config, after(installed, opts=in_cluster))
    for one in cluster.tenants:
        kata.tenant_storage(config, one, after(tenants[one.name], mounted, opts=in_cluster))
    return Outputs(
        kubeconfig=kubeconfig,
        capacity_by_partition_size={str(n): count for n, count in cluster.capacity.items()},
        hosts={
            name: {"active_partitions": host.active_partitions, "cdi_devices": host.cdi_devices}
            for name, host in hosts.items()
        },
        tenants={
            tenant.name: {
                "namespace": tenant.tenancy.namespace,
                "gpus": tenant.share.gpus,
                "ready": tenants[tenant.name].ready,
            }
            for tenant in cluster.tenants
        },
    )


def _certificate(
    exposure: Exposure | None,
    secrets: CaasSecrets,
    namespace: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> ApiCertificate | None:
    """The certificate that tenants see; None if somebody else shows one, or nobody."""
    source: Issuer | Pair
    if (
        exposure is not None
        and not isinstance(exposure, ExternalExposure)
        and isinstance(exposure.certificate, ManagedCertificate)
    ):
        issuer = exposure.certificate
        source = Issuer(kind=issuer.issuer_kind.value, name=issuer.issuer, host=exposure.host)
    elif secrets.api_certificate is not None and secrets.api_private_key is not None:
        source = Pair(chain=secrets.api_certificate, private_key=secrets.api_private_key)
    else:
        return None
    return ApiCertificate("api-certificate", opts, namespace=namespace, source=source)


def _callers(config: CaasConfig) -> Sequence[str]:
    """Networks outside of the cluster from which the API's Service is called."""
    match config.api.exposure:
        case LoadBalancerExposure():
            return ("0.0.0.0/0", "::/0")
        case ExternalExposure():
            return [str(proxy) for proxy in config.api.proxies]
    return ()


def _system(
    config: CaasConfig,
    cluster: CaasPlan,
    secrets: CaasSecrets,
    hosts: Mapping[str, GpuHost],
    opts: pulumi.ResourceOptions,
) -> System:
    known = pulumi.Output.all(
        hosts={
            name: {
                "address": machine.address,
                "port": machine.port,
                "user": machine.user,
                "host_key": machine.host_key,
                "bmc": machine.bmc,
            }
            for name, machine in secrets.hosts.items()
        },
        issuer=secrets.issuer,
        issuer_keys=secrets.issuer_keys,
        golden_firmware=secrets.golden_firmware,
        # Which partitions a layout became is known when it is made.
        cuts={name: host.cut for name, host in hosts.items()},
    )
    files: dict[str, pulumi.Input[str]] = {"ssh-private-key": secrets.controller_ssh_private_key}
    if secrets.bmc_password is not None:
        files["bmc-password"] = secrets.bmc_password
    return System(
        "system",
        opts,
        accounts=config.programs.accounts,
        settings=known.apply(lambda values: settings_file(config, cluster, **values)),
        secrets=files,
        on_demand=cluster.on_demand,
    )


def _reach(config: CaasConfig, secrets: CaasSecrets) -> pulumi.Output[Reach]:
    """Whom the programs connect to; known when the machines and the issuer are."""
    return pulumi.Output.all(
        machines=[[one.address, one.port] for one in secrets.hosts.values()],
        bmcs=[one.bmc for one in secrets.hosts.values()],
        issuer=secrets.issuer,
        keys=secrets.issuer_keys,
    ).apply(
        lambda known: Reach(
            machines=[Place(address, int(port)) for address, port in known["machines"]],
            management_controllers=[Place.of(bmc["url"]) for bmc in known["bmcs"] if bmc],
            issuer=[
                Place.of(url)
                for url in (known["issuer"], config.api.jwks_url, (known["keys"] or {}).get("url"))
                if url
            ],
        )
    )


def _registry_credentials(secrets: CaasSecrets, tenant: TenantPlan) -> pulumi.Output[str] | None:
    """What the tenant's pods pull with."""
    wanted, given = tenant.stated.images.registry_auth, secrets.tenant_registry_credentials
    if not wanted or given is None:
        return None
    return from_secret(
        "tenant-registry-credentials",
        given,
        lambda text: tenancy_resource.docker_config(tenant.name, wanted, yaml.safe_load(text)),
        otherwise="it is not YAML",
    )
