"""`doctor` of a cluster or machines that Google makes: credentials, what is there already, and the quota."""

from collections.abc import Iterator

from gpuclusters.cli.diagnosis import Diagnosis, of_findings, unreachable, well
from gpuclusters.cli.files import read_yaml
from gpuclusters.cli.project import Stack
from gpuclusters.config import gcp, gke_plan
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.rke2_cluster import MadeCluster
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Refused
from gpuclusters.gcp import placement
from gpuclusters.gcp.api import compute
from gpuclusters.gcp.model import GkePlan, GoogleAccess, PoolPlan
from gpuclusters.gcp.placement import GcpQuotaInputs

AREA = "google cloud"


def cluster(stack: Stack, section: GkeConfig) -> Iterator[Diagnosis]:
    return look(stack, gke_plan.plan(section, gcp.owner(stack.project.name, stack.stack)))


def machines(
    stack: Stack, section: MadeCluster | UsernetesConfig, hosts: GcpHosts
) -> Iterator[Diagnosis]:
    owner = gcp.owner(stack.project.name, stack.stack)
    return look(stack, gcp.pool(hosts, cluster=section.name, owner=owner, between_nodes=()))


def look(stack: Stack, wanted: GkePlan | PoolPlan) -> Iterator[Diagnosis]:
    """Credentials, what is there already, and whether the quota suffices for what is not."""
    stated = read_yaml(stack.project.stack_file(stack.stack)).get("config") or {}
    access = GoogleAccess.of(lambda key: stated.get(f"gcp:{key}"))
    try:
        api = compute(access)
        there = [machine.name for machine in api.owned(wanted.project, wanted.owner)]
        yield well(AREA, f"Google Cloud answers for the project {wanted.project}")
        if there:
            yield well(AREA, f"machines of this stack that exist: {len(there)}")
        # The nodes of a managed cluster have names of Google's, which the plan cannot know.
        if there and isinstance(wanted, GkePlan):
            return
        needs = GcpQuotaInputs(
            project=wanted.project, region=wanted.region, owner=wanted.owner, machines=wanted.needs
        )
        needed = placement.require(needs, there, api.quotas(wanted.project, wanted.region))
    except AdapterError as error:
        yield unreachable(AREA, error)
        return
    except Refused as error:
        yield from of_findings(AREA, error.findings)
        return
    said = ", ".join(f"{metric} {amount:g}" for metric, amount in sorted(needed.items()))
    if said:
        yield well(AREA, f"the quota of {wanted.region} suffices: {said}")
