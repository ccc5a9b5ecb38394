"""Machines on Google Cloud, made by the provider's own process against a double of the Compute API."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gpuclusters.gcp.model import GcpMachineInputs, body
from gpuclusters.gcp.resource import GcpMachineProvider, GcpQuotaProvider, SshHostKeyProvider
from tests.providers.compute_double import TOKEN, Cloud, compute_double
from tests.providers.provider_process import (
    Difference,
    Made,
    Properties,
    ProviderProcess,
    Read,
    StepFailed,
    provider_process,
)

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
STOCK = (
    "ZONE_RESOURCE_POOL_EXHAUSTED",
    "The zone does not have enough resources available to fulfill the request. Try a different zone.",
)
USER_DATA = "#cloud-config\nssh_keys: {ed25519_private: very-secret-host-key}\n"
MACHINE: Properties = {
    "project": "p",
    "zones": [A, B],
    "name": "lab-gpu-1",
    "owner": "gpu-clusters-lab",
    "machine_type": "n1-standard-8",
    "accelerator": {"type": "nvidia-tesla-v100", "count": 1},
    "gpus": 1,
    "provisioning": "standard",
    "disk": {"image": "projects/ubuntu-os-cloud/global/images/i", "size_gib": 256},
    "subnetwork": "projects/p/regions/us-central1/subnetworks/lab",
    "tags": ["lab"],
    "labels": {"team": "research"},
    "service_account": "lab@p.iam.gserviceaccount.com",
    "scopes": ["logging.write"],
    "user_data": USER_DATA,
}


@dataclass
class World:
    """The double, and a provider that reaches it."""

    cloud: Cloud
    process: ProviderProcess

    @property
    def google(self) -> Properties:
        """The input that leads to the double."""
        return {"google": {"endpoint": self.cloud.url}}

    def create(self, **changes: Any) -> Made:
        return self.process.create(GcpMachineProvider, MACHINE | self.google | changes)

    def update(self, made: Made, **changes: Any) -> Made:
        return self.process.update(GcpMachineProvider, made, MACHINE | self.google | changes)

    def diff(self, olds: Properties, **changes: Any) -> Difference:
        return self.process.diff(GcpMachineProvider, olds, MACHINE | self.google | changes)

    def delete(self, made: Made) -> None:
        self.process.delete(GcpMachineProvider, made)

    def read(self, made: Made) -> Read:
        return self.process.read(GcpMachineProvider, made)


@pytest.fixture(scope="module")
def shared_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    stderr = tmp_path_factory.mktemp("gcp") / "provider.err"
    with compute_double() as cloud:
        environment = {"GOOGLE_OAUTH_ACCESS_TOKEN": TOKEN}
        with provider_process(stderr, environment) as process:
            yield World(cloud, process)


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.cloud.reset()
    return shared_world


def test_a_machine_is_made_in_the_preferred_zone_stays_and_goes(world: World) -> None:
    made = world.create()
    assert made.id == "p/lab-gpu-1"
    assert made.outputs["zone"] == A
    assert made.outputs["address"] == made.outputs["internal_address"] == "10.10.0.2"
    assert made.outputs["status"] == "RUNNING"
    assert world.cloud.inserts() == [A]
    (sent,) = world.cloud.bodies
    assert sent["scheduling"]["onHostMaintenance"] == "TERMINATE"
    assert sent["labels"] == {"team": "research", "gpu-clusters-owner": "gpu-clusters-lab"}
    assert "accessConfigs" not in sent["networkInterfaces"][0]
    assert not world.diff(made.outputs).changes
    other = "#cloud-config\nnew: version\n"
    assert not world.diff(made.outputs, user_data=other).changes, (
        "it is read at the first boot alone"
    )

    world.cloud.instances[(A, "lab-gpu-1")]["deletionProtection"] = True
    with pytest.raises(StepFailed, match=f"in {A} is protected against deletion; write deletion-"):
        world.delete(made)
    world.update(made)
    world.delete(made)
    assert not world.cloud.instances
    world.delete(made)  # gone already is done


@pytest.mark.parametrize(
    ("refused", "denied", "said"),
    [
        (("INVALID_USAGE", "Invalid value"), "", "another zone would say the same"),
        (("INVALID", f"Invalid metadata: {USER_DATA}"), "", "Invalid metadata"),
        (None, "Required 'compute.instances.list' permission", "give the account the role Compute Admin"),
    ],
    ids=["the machine", "its secrets", "the account"],
)  # fmt: skip
def test_what_another_zone_would_refuse_too_is_said_at_once_and_without_the_host_key(
    world: World, refused: tuple[str, str] | None, denied: str, said: str
) -> None:
    world.cloud.denied = denied
    if refused:
        world.cloud.refuses[A] = refused
    with pytest.raises(StepFailed, match=said) as failed:
        world.create()
    assert world.cloud.inserts() == ([A] if refused else [])
    assert "very-secret-host-key" not in str(failed.value) + world.process.stderr.read_text()


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
    world: World, code: str, message: str, remedy: str
) -> None:
    world.cloud.refuses |= {A: (code, message), B: (code, message)}
    with pytest.raises(StepFailed) as failed:
        world.create()
    text = str(failed.value)
    assert text.startswith("machine lab-gpu-1 in project p: no zone made it (")
    assert f"{A}: {message}; {B}: {message}" in text
    assert remedy in text
    assert "Traceback" not in text
    assert not world.cloud.instances
    world.cloud.refuses.clear()
    assert world.create().outputs["zone"] == A


def test_a_step_that_was_interrupted_finds_what_it_made(world: World) -> None:
    world.cloud.begins.append("lab-gpu-1")
    with pytest.raises(StepFailed):
        world.create(zones=[A])
    assert world.create(zones=[B, A]).outputs["zone"] == A
    assert world.cloud.inserts() == [A]


@pytest.mark.parametrize(
    ("labels", "whose"),
    [({"gpu-clusters-owner": "other"}, "belongs to other"), ({}, "has no label gpu-clusters-owner")],
)  # fmt: skip
def test_a_machine_of_somebody_else_is_left_alone(
    world: World, labels: dict[str, str], whose: str
) -> None:
    world.cloud.add(C, {"name": "lab-gpu-1", "labels": labels})
    with pytest.raises(StepFailed, match=f"a machine of that name in {C}, and it {whose}"):
        world.create()
    assert not world.cloud.inserts()
    world.delete(Made("p/lab-gpu-1", MACHINE | world.google))
    assert (C, "lab-gpu-1") in world.cloud.instances


def test_a_machine_that_is_there_twice_is_a_refusal(world: World) -> None:
    labels = {"gpu-clusters-owner": "gpu-clusters-lab"}
    for zone in (A, B):
        world.cloud.add(zone, {"name": "lab-gpu-1", "labels": labels})
    with pytest.raises(StepFailed, match=f"two machines of that name, in {A} and in {B}"):
        world.create()


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
    world: World, change: Properties, replaced: str
) -> None:
    difference = world.diff(MACHINE | world.google, **change)
    assert difference.replaces == [replaced]
    assert difference.delete_before_replace


def test_labels_tags_and_protection_change_in_place(world: World) -> None:
    made = world.create()
    live = world.cloud.instances[(A, "lab-gpu-1")]
    live["labels"]["goog-ops-agent-policy"] = "v2"
    change = {"labels": {"team": "ops"}, "tags": ["lab", "new"], "deletion_protection": True}
    assert world.diff(made.outputs, **change).replaces == []
    world.update(made, **change)
    assert live["labels"] == {
        "team": "ops",
        "gpu-clusters-owner": "gpu-clusters-lab",
        "goog-ops-agent-policy": "v2",
    }
    assert live["tags"]["items"] == ["lab", "new"]
    assert live["deletionProtection"] is True


def test_a_refresh_sees_what_changed_and_what_is_gone(world: World) -> None:
    made = world.create()
    assert not world.diff(world.read(made).outputs).changes
    live = world.cloud.instances[(A, "lab-gpu-1")]
    live["labels"] = {"gpu-clusters-owner": "gpu-clusters-lab"}
    live["machineType"] = f"zones/{A}/machineTypes/n1-standard-4"
    assert world.diff(world.read(made).outputs).replaces == ["machine_type"]
    world.cloud.instances.clear()
    assert world.read(made).id == ""


def test_a_spot_machine_that_was_taken_back_is_started_again(world: World) -> None:
    spot = {"provisioning": "spot"}
    made = world.create(**spot)
    world.cloud.instances[(A, "lab-gpu-1")]["status"] = "TERMINATED"
    assert world.diff(world.read(made).outputs, **spot).changes
    world.cloud.refuses[A] = STOCK
    with pytest.raises(StepFailed, match=f"it is stopped in {A}, where its disk is, and does not"):
        world.update(made, **spot)
    world.cloud.refuses.clear()
    assert world.update(made, **spot).outputs["status"] == "RUNNING"
    assert world.cloud.inserts() == [A]


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
    world: World, news: Properties, property_: str, reason: str
) -> None:
    failures = world.process.check(GcpMachineProvider, MACHINE | news)
    assert reason in failures[property_]
    assert not world.cloud.calls


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
    machine = GcpMachineInputs.model_validate(MACHINE | changes)
    sent = body(machine, A)
    rules = sent["scheduling"]
    found = (rules["onHostMaintenance"], rules["automaticRestart"], rules["provisioningModel"])
    assert found == expected
    assert rules["preemptible"] is (expected[2] == "SPOT")
    assert sent["shieldedInstanceConfig"]["enableSecureBoot"] is (machine.gpus == 0)
    assert ("guestAccelerators" in sent) is (machine.accelerator is not None)
    metadata = {one["key"]: one["value"] for one in sent["metadata"]["items"]}
    assert metadata["enable-oslogin"] == "FALSE"


def test_all_shortages_of_quota_at_once_before_the_first_machine(world: World) -> None:
    machines = {
        f"lab-gpu-{n}": {"NVIDIA_V100_GPUS": 1, "GPUS_ALL_REGIONS": 1, "CPUS": 8, "NEW_GPUS": 1}
        for n in (1, 2, 3)
    }
    wanted = {"project": "p", "region": "us-central1", "owner": "gpu-clusters-lab"}
    world.cloud.add(A, {"name": "lab-gpu-1", "labels": {"gpu-clusters-owner": "gpu-clusters-lab"}})
    world.cloud.quotas |= {"NVIDIA_V100_GPUS": (2, 1), "CPUS": (72, 8)}
    world.cloud.project_quotas |= {"GPUS_ALL_REGIONS": (0, 0)}
    with pytest.raises(StepFailed) as failed:
        world.process.create(GcpQuotaProvider, wanted | world.google | {"machines": machines})
    assert str(failed.value).strip() == (
        "project p, region us-central1: the quota does not suffice for 2 machines: GPUS_ALL_REGIONS"
        " needs 2 more and 0 of 0 are free; NVIDIA_V100_GPUS needs 2 more and 1 of 2 are free; ask for"
        " more on the page IAM & Admin, Quotas; nothing was made [gcp.quota]"
    )
    world.cloud.quotas["NVIDIA_V100_GPUS"] = (3, 1)
    world.cloud.project_quotas["GPUS_ALL_REGIONS"] = (3, 1)
    made = world.process.create(GcpQuotaProvider, wanted | world.google | {"machines": machines})
    assert made.outputs["needed"]["CPUS"] == 16
    news = wanted | world.google | {"machines": machines}
    assert not world.process.diff(GcpQuotaProvider, made.outputs, news).changes


def test_a_host_key_is_made_once(world: World) -> None:
    made = world.process.create(SshHostKeyProvider, {"machine": "gpu-1"})
    assert made.outputs["private_key"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert made.outputs["public_key"].startswith("ssh-ed25519 AAAA")
    same = world.process.diff(SshHostKeyProvider, made.outputs, {"machine": "gpu-1"})
    assert not same.changes
    assert world.process.read(SshHostKeyProvider, made).outputs == made.outputs


def test_credentials_in_the_configuration_are_refused(world: World, tmp_path: Any) -> None:
    google = {"endpoint": world.cloud.url, "refused": ["gcp:credentials"]}
    with (
        provider_process(tmp_path / "err", {}) as process,
        pytest.raises(StepFailed, match="has gcp:credentials, which reach Pulumi's provider and"),
    ):
        process.create(GcpMachineProvider, MACHINE | {"google": google})
