"""Machines on Google Cloud, made by the provider's own process against a double of the Compute API."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpuclusters.gcp.model import GcpMachineInputs, body
from gpuclusters.gcp.resource import GcpMachineProvider, GcpQuotaProvider, SshHostKeyProvider
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

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
STOCK = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "The zone does not have enough resources available to fulfill the request. Try a different zone.",
)
MACHINE: Properties = beside(__file__, "gcp_machine.yaml")
NAME, OURS = MACHINE["name"], {"gpu-clusters-owner": MACHINE["owner"]}


@pytest.fixture(scope="module")
def double() -> Iterator[Cloud]:
    with compute_double() as made:
        yield made


@pytest.fixture
def cloud(double: Cloud) -> Cloud:
    double.reset()
    return double


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProviderProcess]:
    stderr = tmp_path_factory.mktemp("gcp") / "provider.err"
    with provider_process(stderr, {"GOOGLE_OAUTH_ACCESS_TOKEN": TOKEN}) as made:
        yield made


@pytest.fixture
def machine(cloud: Cloud, process: ProviderProcess) -> Resource:
    return process.of(GcpMachineProvider, MACHINE | {"google": {"endpoint": cloud.url}})


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


@pytest.mark.parametrize(
    ("refused", "denied", "said"),
    [
        (("INVALID_USAGE", "Invalid value"), "", "another zone would say the same"),
        (("INVALID", f"Invalid metadata: {MACHINE['user_data']}"), "", "Invalid metadata"),
        (None, "Required 'compute.instances.list' permission", "give the account the role Compute Admin"),
    ],
    ids=["the machine", "its secrets", "the account"],
)  # fmt: skip
def test_what_another_zone_would_refuse_too_is_said_at_once_and_without_the_host_key(
    cloud: Cloud, machine: Resource, refused: tuple[str, str] | None, denied: str, said: str
) -> None:
    cloud.denied = denied
    if refused:
        cloud.refuses[A] = refused
    text = machine.refused("create", said)
    assert cloud.inserts() == ([A] if refused else [])
    assert "very-secret-host-key" not in text + machine.process.stderr.read_text()


@pytest.mark.parametrize(
    ("code", "message", "remedy"),
    [
        (*STOCK, "machines that were made stay, and only this one is tried again"),
        ("QUOTA_EXCEEDED", "Quota 'NVIDIA_V100_GPUS' exceeded. Limit: 0.0", "ask for more quota"),
        (
            "RESOURCE_NOT_FOUND",
            "The resource 'projects/p/zones/z/acceleratorTypes/nvidia-tesla-v100' was not found",
            "add zones of the region that have it",
        ),
    ],
)
def test_when_no_zone_has_room_each_says_why(
    cloud: Cloud, machine: Resource, code: str, message: str, remedy: str
) -> None:
    cloud.refuses |= {A: (code, message), B: (code, message)}
    text = machine.refused("create", f"{A}: {message}; {B}: {message}", remedy)
    assert text.startswith("machine lab-gpu-1 in project p: no zone made it (")
    assert "Traceback" not in text
    assert not cloud.instances
    cloud.refuses.clear()
    assert machine.create()["zone"] == A


def test_a_step_that_was_interrupted_finds_what_it_made(cloud: Cloud, machine: Resource) -> None:
    cloud.begins.append(NAME)
    machine.refused("create", zones=[A])
    assert machine.create(zones=[B, A])["zone"] == A
    assert cloud.inserts() == [A]


@pytest.mark.parametrize(
    ("zones", "labels", "said"),
    [
        ([C], {"gpu-clusters-owner": "other"}, f"a machine of that name in {C}, and it belongs to"),
        ([C], {}, f"in {C}, and it has no label gpu-clusters-owner"),
        ([A, B], OURS, f"two machines of that name, in {A} and in {B}"),
    ],
    ids=["of somebody else", "of nobody", "twice"],
)
def test_a_machine_that_may_be_another_is_left_alone(
    cloud: Cloud, machine: Resource, zones: list[str], labels: dict[str, str], said: str
) -> None:
    for zone in zones:
        cloud.add(zone, {"name": NAME, "labels": labels})
    machine.refused("create", said)
    assert not cloud.inserts()
    if zones == [C]:
        machine.made = Made("p/lab-gpu-1", machine.wanted)
        machine.delete()
        assert (C, NAME) in cloud.instances


@pytest.mark.parametrize(
    ("change", "replaced"),
    [
        ({"machine_type": "n1-standard-4"}, "machine_type"),
        ({"accelerator": {"type": "nvidia-tesla-v100", "count": 2}}, "accelerator"),
        ({"disk": {"image": "projects/u/global/images/newer", "size_gib": 256}}, "disk"),
        ({"provisioning": "spot"}, "provisioning"),
    ],
)
def test_what_makes_another_machine_of_it_is_a_replacement(
    machine: Resource, change: Properties, replaced: str
) -> None:
    machine.made.outputs = machine.wanted
    difference = machine.diff(**change)
    assert (difference.replaces, difference.delete_before_replace) == ([replaced], True)


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


@pytest.mark.parametrize(
    ("news", "property_", "reason"),
    [
        ({"zones": ["us-central1"]}, "zones[0]", "write a zone like us-central1-a"),
        ({"zones": []}, "zones", "at least 1 item"),
        ({"name": "Lab"}, "name", "write at most 63 lower-case letters"),
        ({"accelerator": {"type": "v100", "count": 1}}, "accelerator.type", "like nvidia-tesla-v100"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_refused_in_a_preview(
    cloud: Cloud, process: ProviderProcess, news: Properties, property_: str, reason: str
) -> None:
    failures = process.check(GcpMachineProvider, MACHINE | news)
    assert reason in failures[property_]
    assert not cloud.calls


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("TERMINATE", True, "STANDARD")),
        ({"accelerator": None, "gpus": 0}, ("MIGRATE", True, "STANDARD")),
        ({"provisioning": "spot"}, ("TERMINATE", False, "SPOT")),
        ({"machine_type": "a2-highgpu-1g", "accelerator": None}, ("TERMINATE", True, "STANDARD")),
    ],
)
def test_a_machine_with_gpus_is_never_moved_while_it_runs(
    changes: Properties, expected: tuple[str, bool, str]
) -> None:
    inputs = GcpMachineInputs.model_validate(MACHINE | changes)
    sent = body(inputs, A)
    rules = sent["scheduling"]
    found = (rules["onHostMaintenance"], rules["automaticRestart"], rules["provisioningModel"])
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
        **{"project": "p", "region": "us-central1", "owner": MACHINE["owner"]},
        **{"google": machine.wanted["google"]},
        "machines": {f"lab-gpu-{n}": each for n in (1, 2, 3)},
    }
    quota = machine.process.of(GcpQuotaProvider, inputs)
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
    key = process.of(SshHostKeyProvider, {"machine": "gpu-1"})
    made = key.create()
    assert made["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert made["public_key"].startswith("ssh-ed25519 AAAA")
    assert not key.differs()
    assert key.look().outputs == made


def test_credentials_in_the_configuration_are_refused(cloud: Cloud, tmp_path: Any) -> None:
    google = {"endpoint": cloud.url, "refused": ["gcp:credentials"]}
    with provider_process(tmp_path / "err", {}) as process:
        made = process.of(GcpMachineProvider, MACHINE | {"google": google})
        made.refused("create", "has gcp:credentials, which reach Pulumi's provider and")


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

    def up(names: list[str], zones: list[str], *options: str) -> Done:
        wanted = json.dumps([MACHINE | {"zones": zones}, names])
        (project.folder / "wanted.json").write_text(wanted)
        return project("up", "--yes", "--skip-preview", *options)

    assert up(["gpu-1"], [A, B]).code == 0
    cloud.refuses[A] = STOCK
    assert up(["gpu-1", "gpu-2"], [A, B]).code == 0
    assert set(cloud.instances) == {(A, "gpu-1"), (B, "gpu-2")}
    assert up(["gpu-1", "gpu-2"], [A, B], "--expect-no-changes").code == 0
    assert up(["gpu-2"], [B]).code == 0
    assert set(cloud.instances) == {(B, "gpu-2")}
    assert cloud.inserts() == [A, A, B]
    (kept,) = project.state.rglob("stacks/**/dev.json")
    assert "PRIVATE KEY" not in kept.read_text()
