"""`doctor` on Google Cloud: credentials, quota, and what a stack without a cluster is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gpuclusters.cli import doctor_google, reach
from gpuclusters.cli import engine as engines
from gpuclusters.cli.diagnosis import Diagnosis, Level
from gpuclusters.cli.errors import RunError
from gpuclusters.cli.project import Project, Stack
from gpuclusters.config.gcp import GcpHosts, instance_name
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.stack import ClusterType, StackConfig, check_stack_file
from gpuclusters.config.usernetes import UsernetesConfig
from tests.providers.compute_double import TOKEN, Cloud, compute_double
from tests.unit.cli.conftest import ROOT, stack_of
from tests.unit.config.documents import base

CONFIG = GkeConfig.model_validate(base(ClusterType.GKE)["gke"])


def test_a_stack_without_a_cluster_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.lab_folder.mkdir()
    monkeypatch.setenv(engines.CHOICE, engines.Kind.EMBEDDED)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{project.lab_folder}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "p")
    said = "has no cluster yet; run `gpu-clusters up --stack gke-v100`"
    with pytest.raises(RunError, match=said):
        reach.made_kubeconfig(project, "gke-v100", None)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", TOKEN)
    with compute_double() as made:
        yield made


def stack(project: Project, cloud: Cloud, **more: Any) -> Stack:
    """The stack `prod`, whose Compute API is the double."""
    config = {"gcp:computeCustomEndpoint": cloud.url, **more}
    (project.folder / "Pulumi.prod.yaml").write_text(yaml.safe_dump({"config": config}))
    return stack_of(project, "prod")


def looked(project: Project, cloud: Cloud, **more: Any) -> list[Diagnosis]:
    return list(doctor_google.cluster(stack(project, cloud, **more), CONFIG))


def made(cloud: Cloud, name: str) -> None:
    """A machine of the stack that is there already."""
    labels = {"gpu-clusters-owner": "gpu-clusters-prod"}
    cloud.add("us-central1-a", {"name": name, "labels": labels})


ENOUGH = {"NVIDIA_V100_GPUS": (8, 6), "CPUS": (100, 0), "SSD_TOTAL_GB": (4096, 0)}


def test_a_quota_is_told_with_what_is_needed_and_what_is_free(
    project: Project, cloud: Cloud
) -> None:
    cloud.quotas |= ENOUGH
    cloud.project_quotas |= {"GPUS_ALL_REGIONS": (2, 0)}
    last = looked(project, cloud)[-1]
    assert last.level is Level.OK
    # Two nodes with a V100 and 8 vCPUs, one with 4 (of E2).
    assert "NVIDIA_V100_GPUS 2" in last.text
    assert "CPUS 20" in last.text
    assert {call.split()[0] for call in cloud.calls} == {"GET"}, "nothing is changed"
    cloud.project_quotas |= {"GPUS_ALL_REGIONS": (0, 0)}
    last = looked(project, cloud)[-1]
    assert (last.level, last.id) == (Level.FAILURE, "gcp.quota")
    assert "GPUS_ALL_REGIONS needs 2 more and 0 of 0 are free" in last.text
    # It is not judged where nodes of the stack are there.
    made(cloud, "gke-study-v100-1a")
    assert looked(project, cloud)[-1].text == "machines of this stack that exist: 1"


def test_machines_that_the_stack_makes_are_judged_by_those_that_are_missing(
    project: Project, cloud: Cloud
) -> None:
    config = check_stack_file(ROOT / "Pulumi.usernetes-v100.yaml")
    assert isinstance(config, StackConfig)
    assert isinstance(config.section, UsernetesConfig)
    assert isinstance(config.section.hosts, GcpHosts)
    cloud.quotas |= ENOUGH | {"NVIDIA_V100_GPUS": (2, 0)}
    cloud.project_quotas |= {"GPUS_ALL_REGIONS": (8, 0)}
    asked = stack(project, cloud)
    short = list(doctor_google.machines(asked, config.section, config.section.hosts))[-1]
    assert (short.level, short.id) == (Level.FAILURE, "gcp.quota")
    assert "NVIDIA_V100_GPUS needs 3 more and 2 of 2 are free" in short.text
    made(cloud, instance_name(config.section.name, "v100-1"))
    last = list(doctor_google.machines(asked, config.section, config.section.hosts))[-1]
    assert last.level is Level.OK
    assert "NVIDIA_V100_GPUS 2" in last.text


@pytest.mark.parametrize("key", ["gcp:credentials", "gcp:accessToken"])
def test_credentials_in_the_stack_are_refused(project: Project, cloud: Cloud, key: str) -> None:
    (only,) = looked(project, cloud, **{key: {"secure": "x"}})
    assert (only.level, only.id) == (Level.FAILURE, "gcp.other-credentials")
    assert cloud.calls == []


def test_an_account_that_may_not_ask_is_told_what_it_needs(project: Project, cloud: Cloud) -> None:
    cloud.denied = "Required 'compute.instances.list' permission"
    last = looked(project, cloud)[-1]
    assert last.level is Level.FAILURE
    assert "compute.instances.list" in last.text
