"""`doctor` of a cluster that Google makes: credentials, what is there of it, and the quota for it."""

from collections.abc import Iterator

from gpuclusters.cli.diagnosis import Diagnosis, of_findings, unreachable, well
from gpuclusters.cli.files import read_yaml
from gpuclusters.cli.project import Stack
from gpuclusters.config import gcp, gke_plan
from gpuclusters.config.gke import GkeConfig
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Refused
from gpuclusters.gcp import placement
from gpuclusters.gcp.api import compute
from gpuclusters.gcp.model import GoogleAccess
from gpuclusters.gcp.placement import GcpQuotaInputs

AREA = "google cloud"


def look(stack: Stack, section: GkeConfig) -> Iterator[Diagnosis]:
    """Credentials, what is there already, and whether the quota suffices for what is not."""
    stated = read_yaml(stack.project.stack_file(stack.stack)).get("config") or {}
    access = GoogleAccess.of(lambda key: stated.get(f"gcp:{key}"))
    wanted = gke_plan.plan(section, gcp.owner(stack.project.name, stack.stack))
    try:
        api = compute(access)
        there = api.owned(wanted.project, wanted.owner)
        yield well(AREA, f"Google Cloud answers for the project {wanted.project}")
        if there:
            yield well(AREA, f"{len(there)} nodes of this stack are there; quota is not judged")
            return
        needs = GcpQuotaInputs(
            project=wanted.project, region=wanted.region, owner=wanted.owner, machines=wanted.needs
        )
        needed = placement.require(needs, (), api.quotas(wanted.project, wanted.region))
    except AdapterError as error:
        yield unreachable(AREA, error)
        return
    except Refused as error:
        yield from of_findings(AREA, error.findings)
        return
    said = ", ".join(f"{metric} {amount:g}" for metric, amount in sorted(needed.items()))
    yield well(AREA, f"the quota of {wanted.region} suffices: {said}")
