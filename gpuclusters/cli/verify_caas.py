"""`verify` of a caas cluster: try what a hostile tenant would try, and keep the evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpuclusters.cli import files, reach
from gpuclusters.cli.access import container_api
from gpuclusters.cli.errors import RunError, wrong_option
from gpuclusters.cli.lab_entry import lab_of
from gpuclusters.cli.project import Project
from gpuclusters.cli.verify_gpus import Head
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import uses_lab
from gpuclusters.container_api.client import ContainerApi
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.proof.evidence import IsolationEvidence
from gpuclusters.tenancy.intrusion import Target, attack

_TOKEN_SECONDS = 600
_SIMULATED = (
    "The machines are simulated and no data plane runs: that packets are dropped was not tried, only that "
    "the policies are in force."
)


def run(
    project: Project,
    config: CaasConfig,
    about: Head,
    *,
    kubeconfig: Path | None,
    api: str | None,
    tokens: Sequence[str],
) -> IsolationEvidence:
    """Attack the cluster."""
    stated = ContainerApi(api) if api else None
    if uses_lab(config):
        lab = lab_of(project)
        known = {tenant.name: lab.token(tenant.name, _TOKEN_SECONDS) for tenant in config.tenants}
        stated = stated or container_api(project, config)
    else:
        known = dict(map(_token, tokens))
    objects = KubernetesObjects(reach.kubeconfig(project, config, kubeconfig))
    target = Target(
        objects=objects,
        accounts=config.programs.accounts,
        node=config.nodes[0].name,
        api=stated,
        tokens=known,
        tenant_claim=config.api.tenant_claim,
    )
    head = about(objects.version(), remarks(project, config))
    found = IsolationEvidence(about=head, attempts=tuple(attack(target)))
    if not found.attempts:
        raise RunError(f"the cluster {config.name} has no tenants; there is nobody to try as")
    return found


def remarks(project: Project, config: CaasConfig) -> Sequence[str]:
    """What of the evidence is about stand-ins; nothing of a real cluster's."""
    if not uses_lab(config):
        return ()
    lab = lab_of(project)
    kind = lab.kind()
    return (_SIMULATED, f"{lab.kata(kind)}.") if kind else (_SIMULATED,)


def _token(option: str) -> tuple[str, str]:
    tenant, equals, file = option.partition("=")
    if not equals:
        raise wrong_option(f"--token must be TENANT=FILE (got {option!r})")
    return tenant, files.read(Path(file), "the token file ").strip()
