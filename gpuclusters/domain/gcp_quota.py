"""Whether a project may have all machines that are still to be made: every shortage at once.

Source: cloud.google.com/compute/resource-usage. A metric that the API does not answer (quotas of the newest
GPUs live in another API) is not judged: the machine itself is then refused or made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.finding import refused
from gpuclusters.domain.gcp_compute import Quota
from gpuclusters.domain.gcp_machine import GoogleAccess
from gpuclusters.domain.gcp_machines import Provisioning, attachable, machine_type

ALL_GPUS = "GPUS_ALL_REGIONS"
SPOT_PREFIX = "PREEMPTIBLE_"
CPU_QUOTAS = {"n2": "N2_CPUS", "a2": "A2_CPUS"}
"""Series that do not count towards CPUS. A3 has no quota of processors."""


class GcpQuotaInputs(BaseModel):
    """The machines of a cluster and what each of them counts for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str
    region: str
    owner: str
    machines: Annotated[dict[str, dict[str, float]], Field(min_length=1)]
    """By name on Google Cloud: amounts by metric."""
    google: GoogleAccess = GoogleAccess()

    @property
    def natural_id(self) -> str:
        """One for each stack and region."""
        return f"{self.project}/{self.region}/{self.owner}/quota"


def needs(
    machine: str,
    *,
    product: str | None,
    gpus: int,
    provisioning: Provisioning,
    disk_gib: int,
    public_address: bool,
) -> dict[str, float]:
    """What one machine of a type counts for.

    Raises:
        KeyError: nobody has read about the machine type.
    """
    size = machine_type(machine)
    if size is None:
        raise KeyError(machine)
    spot = SPOT_PREFIX if provisioning is Provisioning.SPOT else ""
    amounts: dict[str, float] = {"SSD_TOTAL_GB": disk_gib}
    series = machine.partition("-")[0]
    if series != "a3" and not spot:
        amounts[CPU_QUOTAS.get(series, "CPUS")] = size.vcpus
    if gpus:
        row = attachable(product) if product else None
        metric = row[1].quota if row else size.built_in.quota if size.built_in else None
        if metric:
            amounts[f"{spot}{metric}"] = gpus
        amounts[ALL_GPUS] = gpus
    if public_address:
        amounts["IN_USE_ADDRESSES"] = 1
    return amounts


def require(
    wanted: GcpQuotaInputs, existing: Collection[str], quotas: Mapping[str, Quota]
) -> dict[str, float]:
    """What the machines that are missing count for together.

    Raises:
        Refused: the project may not have that much; names every metric that is short.
    """
    total: dict[str, float] = {}
    missing = [name for name in wanted.machines if name not in existing]
    for name in missing:
        for metric, amount in wanted.machines[name].items():
            total[metric] = total.get(metric, 0) + amount
    short = [
        f"{metric} needs {amount:g} more and {quota.free:g} of {quota.limit:g} are free"
        for metric, amount in sorted(total.items())
        if (quota := quotas.get(metric)) is not None and quota.free < amount
    ]
    if short:
        raise refused(
            f"project {wanted.project}, region {wanted.region}",
            "gcp.quota",
            f"the quota does not suffice for {len(missing)} machines: {'; '.join(short)}",
            "ask for more on the page IAM & Admin, Quotas; nothing was made",
        )
    return total
