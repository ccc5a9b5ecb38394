"""Machines on Google Cloud, made by the provider's own process against a double of the Compute API."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.gcp.model import GcpMachineInputs, body
from tests.adopt.conftest import project, warm
from tests.engine.shellkit import Done, Shell, shell
from tests.fixtures.tables import beside
from tests.providers.compute_double import TOKEN, Cloud, compute_double
from tests.providers.provider_process import (
    Made,
    Properties,
    ProviderProcess,
    Resource,
    provider_process,
)

__all__ = ["project", "shell", "warm"]

TABLES: Properties = beside(__file__, "gcp_machine.yaml")
MACHINE: Properties = TABLES["machine"]
A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
NAME, OURS = MACHINE["name"], {"gpu-clusters-owner": MACHINE["owner"]}
STOCK = TABLES["refused"]["no stock"]["answer"]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with compute_double() as made:
        yield made


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    stderr = tmp_path_factory.mktemp("gcp") / "provider.err"
    with provider_process(stderr, {"GOOGLE_OAUTH_ACCESS_TOKEN": TOKEN}) as made:
        yield made


@pytest.fixture
def machine(cloud: Cloud, process: ProviderProcess) -> Resource:
    return process.of("GcpMachine", MACHINE | {"google": {"endpoint": cloud.url}})


def test_a_machine_is_made_in_the_preferred_zone_stays_and_goes(
    cloud: Cloud, machine: Resource
) -> None:
    made = machine.create()
    assert machine.id == "p/lab-gpu-1"
    assert made["zone"] == A
    assert made["address"] == made["internal_address"] == "10.10.0.2"
    assert made["status"] == "RUNNING"
    assert cloud.inserts() == [A]
    (sent,) = cloud.bodies
    assert sent["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert sent["labels"] == {"team": "research", **OURS}
    assert "accessConfigs" not in sent["networkInterfaces"][0]
    assert not machine.differs()
    other = "#cloud-config\nnew: version\n"
    assert not machine.differs(user_data=other), "it is read at the first boot alone"

    cloud.instances[(A, NAME)]["deletionProtection"] = True
    machine.refused("delete", f"in {A} is protected against deletion; write deletion-")
    machine.update()
    machine.delete()
    assert not cloud.instances
    machine.delete()  # gone already is done


@pytest.mark.parametrize("row", TABLES["refused"].values(), ids=TABLES["refused"])
def test_what_google_refuses_is_said_with_the_way_out_and_without_the_host_key(
    cloud: Cloud, machine: Resource, row: Properties
) -> None:
    cloud.denied = row.get("denied", "")
    cloud.refuses |= dict.fromkeys(row["asked"], row.get("answer"))
    text = machine.refused("create", *row["said"])
    assert cloud.inserts() == row["asked"], "a zone that would say the same is not asked"
    assert "very-secret-host-key" not in text + machine.process.stderr.read_text()
    assert "Traceback" not in text
    assert not cloud.instances
    cloud.denied = ""
    cloud.refuses.clear()
    assert machine.create()["zone"] == A


def test_a_step_that_was_interrupted_finds_what_it_made(cloud: Cloud, machine: Resource) -> None:
    cloud.begins.append(NAME)
    machine.refused("create", zones=[A])
    assert machine.create(zones=[B, A])["zone"] == A
    assert cloud.inserts() == [A]


@pytest.mark.parametrize("row", TABLES["left alone"].values(), ids=TABLES["left alone"])
def test_a_machine_that_may_be_another_is_left_alone(
    cloud: Cloud, machine: Resource, row: Properties
) -> None:
    for zone in row["zones"]:
        cloud.add(zone, {"name": NAME, "labels": row["labels"]})
    machine.refused("create", row["said"])
    assert not cloud.inserts()
    if row["zones"] == [C]:
        machine.made = Made("p/lab-gpu-1", machine.wanted)
        machine.delete()
        assert (C, NAME) in cloud.instances


@pytest.mark.parametrize("change", TABLES["replacements"], ids=lambda change: next(iter(change)))
def test_what_makes_another_machine_of_it_is_a_replacement(
    machine: Resource, change: Properties
) -> None:
    machine.made.outputs = machine.wanted
    difference = machine.diff(**change)
    assert (difference.replaces, difference.delete_before_replace) == ([*change], True)


def test_labels_tags_and_protection_change_in_place_and_a_refresh_sees_what_changed(
    cloud: Cloud, machine: Resource
) -> None:
    machine.create()
    live = cloud.instances[(A, NAME)]
    live["labels"]["goog-ops-agent-policy"] = "v2"
    change = {"labels": {"team": "ops"}, "tags": ["lab", "new"], "deletion_protection": True}
    assert machine.diff(**change).replaces == []
    machine.update(**change)
    assert live["labels"] == {"team": "ops", **OURS, "goog-ops-agent-policy": "v2"}
    assert live["tags"]["items"] == ["lab", "new"]
    assert live["deletionProtection"] is True

    machine.refresh()
    assert not machine.differs(**change)
    live["labels"] = OURS
    live["machineType"] = f"zones/{A}/machineTypes/n1-standard-4"
    machine.refresh()
    assert machine.diff().replaces == ["machine_type"]
    cloud.instances.clear()
    assert machine.refresh().id == ""


def test_a_spot_machine_that_was_taken_back_is_started_again(
    cloud: Cloud, machine: Resource
) -> None:
    machine.wanted["provisioning"] = "spot"
    machine.create()
    cloud.instances[(A, NAME)]["status"] = "TERMINATED"
    machine.drifted()
    cloud.refuses[A] = STOCK
    machine.refused("update", f"it is stopped in {A}, where its disk is, and does not")
    cloud.refuses.clear()
    assert machine.update()["status"] == "RUNNING"
    assert cloud.inserts() == [A]


@pytest.mark.parametrize(("news", "property_", "reason"), TABLES["wrong"])
def test_wrong_inputs_are_refused_in_a_preview(
    cloud: Cloud, process: ProviderProcess, news: Properties, property_: str, reason: str
) -> None:
    failures = process.check("GcpMachine", MACHINE | news)
    assert reason in failures[property_]
    assert not cloud.calls


@pytest.mark.parametrize(("changes", "expected"), TABLES["scheduling"])
def test_a_machine_with_gpus_is_never_moved_while_it_runs(
    changes: Properties, expected: list[Any]
) -> None:
    inputs = GcpMachineInputs.model_validate(MACHINE | changes)
    sent = body(inputs, A)
    rules = sent["scheduling"]
    found = [rules["onHostMaintenance"], rules["automaticRestart"], rules["provisioningModel"]]
    assert found == expected
    assert rules["preemptible"] is (expected[2] == "SPOT")
    assert sent["shieldedInstanceConfig"]["enableSecureBoot"] is (inputs.gpus == 0)
    assert ("guestAccelerators" in sent) is (inputs.accelerator is not None)
    metadata = {one["key"]: one["value"] for one in sent["metadata"]["items"]}
    assert metadata["enable-oslogin"] == "FALSE"


def test_all_shortages_of_quota_at_once_before_the_first_machine(
    cloud: Cloud, machine: Resource
) -> None:
    each = {"NVIDIA_V100_GPUS": 1, "GPUS_ALL_REGIONS": 1, "CPUS": 8, "NEW_GPUS": 1}
    inputs = {
        **{key: machine.wanted[key] for key in ("project", "owner", "google")},
        "region": "us-central1",
        "machines": {f"lab-gpu-{n}": each for n in (1, 2, 3)},
    }
    quota = machine.process.of("GcpQuota", inputs)
    cloud.add(A, {"name": NAME, "labels": OURS})
    cloud.quotas |= {"NVIDIA_V100_GPUS": (2, 1), "CPUS": (72, 8)}
    cloud.project_quotas |= {"GPUS_ALL_REGIONS": (0, 0)}
    assert quota.refused("create").strip() == (
        "project p, region us-central1: the quota does not suffice for 2 machines: GPUS_ALL_REGIONS"
        " needs 2 more and 0 of 0 are free; NVIDIA_V100_GPUS needs 2 more and 1 of 2 are free; ask for"
        " more on the page IAM & Admin, Quotas; nothing was made [gcp.quota]"
    )
    cloud.quotas["NVIDIA_V100_GPUS"] = (3, 1)
    cloud.project_quotas["GPUS_ALL_REGIONS"] = (3, 1)
    assert quota.create()["needed"]["CPUS"] == 16
    assert not quota.differs()


def test_a_host_key_is_made_once(process: ProviderProcess) -> None:
    key = process.of("SshHostKey", {"machine": "gpu-1"})
    made = key.create()
    assert made["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert made["public_key"].startswith("ssh-ed25519 AAAA")
    assert not key.differs()
    assert key.look().outputs == made


def test_credentials_in_the_configuration_are_refused(cloud: Cloud, machine: Resource) -> None:
    google = {"endpoint": cloud.url, "refused": ["gcp:credentials"]}
    machine.refused(
        "create", "has gcp:credentials, which reach Pulumi's provider and", google=google
    )
    assert not cloud.calls


PROGRAM = """
import json, pulumi
from gpuclusters.gcp.resource import GcpMachine, SshHostKey
machine, names = json.load(open("wanted.json"))
for name in names:
    key = SshHostKey(f"{name}-key", machine=name)
    inputs = machine | {"name": name, "user_data": pulumi.Output.secret(key.private_key)}
    GcpMachine(name, **inputs)
"""


def test_machines_that_exist_stay_while_others_are_made_elsewhere(
    project: Shell, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole runs of the engine."""
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", TOKEN)
    (project.folder / "__main__.py").write_text(PROGRAM)
    project.ok("config", "set", "gcp:computeCustomEndpoint", cloud.url)

    def up(*names: str) -> Done:
        wanted = json.dumps([MACHINE | {"zones": [A, B]}, names])
        (project.folder / "wanted.json").write_text(wanted)
        return project("up", "--yes", "--skip-preview")

    assert up("gpu-1").code == 0
    cloud.refuses[A] = STOCK
    assert up("gpu-1", "gpu-2").code == 0
    assert set(cloud.instances) == {(A, "gpu-1"), (B, "gpu-2")}
    assert up("gpu-2").code == 0
    assert set(cloud.instances) == {(B, "gpu-2")}
    assert cloud.inserts() == [A, A, B]
    (kept,) = project.state.rglob("stacks/**/dev.json")
    assert "PRIVATE KEY" not in kept.read_text()
