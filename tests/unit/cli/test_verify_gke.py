"""`verify` and `doctor` of a gke cluster: the rungs of the cluster, credentials and quota."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuclusters.cli import compare, doctor_google, reach, verify
from gpuclusters.cli import engine as engines
from gpuclusters.cli.diagnosis import Diagnosis, Level
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.project import Project, Stack
from gpuclusters.config.gcp import GcpHosts, instance_name
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.stack import ClusterType, StackConfig, check_stack_file
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.proof.evidence import faults
from tests.providers.compute_double import TOKEN, Cloud, compute_double
from tests.unit.config.documents import base
from tests.unit.proof.ladder_world import LadderCluster, reached

ROOT = Path(__file__).resolve().parents[3]
SECTION = base(ClusterType.GKE)["gke"]
CONFIG = GkeConfig.model_validate(SECTION)
NAMES = ("gke-study-v100-1a", "gke-study-v100-2b")


class Cluster(LadderCluster):
    def version(self) -> str:
        return "v1.34.1-gke.1829001"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(
        gpus=dict.fromkeys(NAMES, "1"),
        ready=dict.fromkeys(NAMES, "True"),
        external={},
        pools=dict.fromkeys(NAMES, "v100"),
    )
    made.logs |= {f"reach-{n}": reached(name) for n, name in enumerate(NAMES)}
    monkeypatch.setattr(verify, "PatientObjects", lambda _: made)
    monkeypatch.setattr(reach, "made_kubeconfig", lambda *_: "kubeconfig")
    return made


def test_the_evidence_begins_at_the_nodes_and_holds(cluster: Cluster) -> None:
    found = verify.gke(verify.Request(Project.find(), "s"), CONFIG)
    assert found.holds, found.verdict
    document = json.loads(json.dumps(found.document()))
    assert faults(document) == []
    assert {row["level"] for row in document["checks"]} == {"R5", "R6", "R7", "R8"}
    assert document["apiServer"] == "v1.34.1-gke.1829001"
    assert set(document["nodes"]) == set(NAMES)
    assert cluster.left() == []


def test_a_rung_of_hosts_is_refused_by_name(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match="5 to 9: its hosts are Google's"):
        verify.gke(verify.Request(Project.find(), "s", level="R4"), CONFIG)
    assert cluster.made == []


def test_a_stack_without_a_cluster_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "gpuclusters").mkdir()
    (tmp_path / "state").mkdir()
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    shutil.copy(ROOT / "Pulumi.gke-v100.yaml", tmp_path)
    monkeypatch.setenv(engines.CHOICE, engines.Kind.EMBEDDED)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path / 'state'}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "p")
    with pytest.raises(
        RunError, match="has no cluster yet; run `gpu-clusters up --stack gke-v100`"
    ):
        reach.made_kubeconfig(Project.find(tmp_path), "gke-v100", None)


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", TOKEN)
    with compute_double() as made:
        yield made


def stack(folder: Path, cloud: Cloud, **more: Any) -> Stack:
    """The stack `prod`, whose Compute API is the double."""
    (folder / "gpuclusters").mkdir()
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    config = {"gcp:computeCustomEndpoint": cloud.url, **more}
    (folder / "Pulumi.prod.yaml").write_text(yaml.safe_dump({"config": config}))
    engine = engines.Engine(engines.Kind.EMBEDDED, (sys.executable, "-m", "engine"), "")
    return Stack(Project.find(folder), "prod", engine, {})


def looked(folder: Path, cloud: Cloud, **more: Any) -> list[Diagnosis]:
    return list(doctor_google.cluster(stack(folder, cloud, **more), CONFIG))


ENOUGH = {"NVIDIA_V100_GPUS": (8, 6), "CPUS": (100, 0), "SSD_TOTAL_GB": (4096, 0)}


def test_a_quota_that_suffices_is_told_with_what_is_needed(tmp_path: Path, cloud: Cloud) -> None:
    cloud.quotas |= ENOUGH
    cloud.project_quotas |= {"GPUS_ALL_REGIONS": (2, 0)}
    last = looked(tmp_path, cloud)[-1]
    assert last.level is Level.OK
    # Two nodes with a V100 and 8 vCPUs, one with 4 (of E2).
    assert "NVIDIA_V100_GPUS 2" in last.text
    assert "CPUS 20" in last.text
    assert {call.split()[0] for call in cloud.calls} == {"GET"}, "nothing is changed"


def test_a_quota_that_is_short_is_named_with_what_is_free(tmp_path: Path, cloud: Cloud) -> None:
    cloud.quotas |= ENOUGH
    cloud.project_quotas |= {"GPUS_ALL_REGIONS": (0, 0)}
    last = looked(tmp_path, cloud)[-1]
    assert (last.level, last.id) == (Level.FAILURE, "gcp.quota")
    assert "GPUS_ALL_REGIONS needs 2 more and 0 of 0 are free" in last.text


def test_quota_is_not_judged_where_nodes_of_the_stack_are_there(
    tmp_path: Path, cloud: Cloud
) -> None:
    labels = {"gpu-clusters-owner": "gpu-clusters-prod"}
    cloud.add("us-central1-a", {"name": NAMES[0], "labels": labels})
    last = looked(tmp_path, cloud)[-1]
    assert last.text == "machines of this stack that exist: 1"


def test_machines_that_the_stack_makes_are_judged_by_those_that_are_missing(
    tmp_path: Path, cloud: Cloud
) -> None:
    config = check_stack_file(ROOT / "Pulumi.usernetes-v100.yaml")
    assert isinstance(config, StackConfig)
    assert isinstance(config.section, UsernetesConfig)
    assert isinstance(config.section.hosts, GcpHosts)
    cloud.quotas |= ENOUGH | {"NVIDIA_V100_GPUS": (2, 0)}
    cloud.project_quotas |= {"GPUS_ALL_REGIONS": (8, 0)}
    asked = stack(tmp_path, cloud)
    short = list(doctor_google.machines(asked, config.section, config.section.hosts))[-1]
    assert (short.level, short.id) == (Level.FAILURE, "gcp.quota")
    assert "NVIDIA_V100_GPUS needs 3 more and 2 of 2 are free" in short.text
    labels = {"gpu-clusters-owner": "gpu-clusters-prod"}
    name = instance_name(config.section.name, "v100-1")
    cloud.add("us-central1-a", {"name": name, "labels": labels})
    last = list(doctor_google.machines(asked, config.section, config.section.hosts))[-1]
    assert last.level is Level.OK
    assert "NVIDIA_V100_GPUS 2" in last.text


@pytest.mark.parametrize("key", ["gcp:credentials", "gcp:accessToken"])
def test_credentials_in_the_stack_are_refused(tmp_path: Path, cloud: Cloud, key: str) -> None:
    (only,) = looked(tmp_path, cloud, **{key: {"secure": "x"}})
    assert (only.level, only.id) == (Level.FAILURE, "gcp.other-credentials")
    assert cloud.calls == []


def test_an_account_that_may_not_ask_is_told_what_it_needs(tmp_path: Path, cloud: Cloud) -> None:
    cloud.denied = "Required 'compute.instances.list' permission"
    last = looked(tmp_path, cloud)[-1]
    assert last.level is Level.FAILURE
    assert "compute.instances.list" in last.text


def test_what_verify_keeps_can_be_compared(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(verify, "read_valid", lambda *_: StackConfig(ClusterType.GKE, CONFIG))
    assert verify.run(verify.Request(Project.find(), "s"), folder=tmp_path) == 0
    (path,) = tmp_path.glob("ladder-study-*.json")
    setting = json.loads(path.read_text())["setting"]
    assert setting["type"] == "gke"
    # e2-standard-4 is in no price table, and what is not known is no zero.
    assert setting["perHour"] is None
    capsys.readouterr()
    compare.command(path, path, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["type"] == {"a": "gke", "b": "gke"}
    assert told["isolation"]["a"].startswith("namespaces; Google runs the control plane")
