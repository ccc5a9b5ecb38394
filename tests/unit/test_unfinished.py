"""What a killed run left is told apart by what its lock, the state and Helm's records say."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuclusters.cli import unfinished
from gpuclusters.cli.unfinished import Fate, Process
from gpuclusters.gpu_operator.helm_release import Revision
from gpuclusters.review.plan import HELM_RELEASE, SECRET_MARK, Resource
from tests.fixtures.tables import beside

CASES = beside(__file__, "unfinished.yaml")
LOCK = CASES["lock"]
TAKEN = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
BEGAN = {"before": TAKEN - timedelta(seconds=1), "later": TAKEN + timedelta(hours=3)}


@pytest.mark.parametrize("case", CASES["fates"], ids=lambda case: "-".join(map(str, case.values())))
def test_a_lock_is_dead_only_if_its_run_is_known_to_be(case: dict[str, Any]) -> None:
    process = None
    if "began" in case:
        process = Process(BEGAN[case["began"]], is_engine=case["engine"])
    found = unfinished.fate(unfinished.read_lock("f", LOCK), case["here"], process)
    assert found is Fate[case["fate"]]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", LOCK.replace("4711", '"x"'), LOCK.replace("4711", "0"), LOCK[:40]],
)
def test_a_lock_that_says_nothing_is_somebodys(text: str) -> None:
    assert unfinished.fate(unfinished.read_lock("f", text), "desk", None) is Fate.UNREADABLE


def release(**inputs: str) -> Resource:
    urn = "urn:pulumi:dev::p::kubernetes:helm.sh/v3:Release::kata"
    return Resource(HELM_RELEASE, "kata", inputs, urn=urn, provider="provider::id")


def records(*statuses: str) -> list[Revision]:
    return [
        Revision(f"sh.helm.release.v1.kata.v{n}", n, status, "4.1.0")
        for n, status in enumerate(statuses, 1)
    ]


@pytest.mark.parametrize(("statuses", "in_state", "forgotten"), CASES["forgotten"])
def test_only_records_of_what_was_cut_off_are_forgotten(
    statuses: list[str], in_state: bool, forgotten: list[int]
) -> None:
    fault = unfinished.release_fault(
        release(name="kata", namespace="kube-system"), records(*statuses), in_state=in_state
    )
    assert fault is not None
    secrets = [f"sh.helm.release.v1.kata.v{number}" for number in forgotten]
    command = ("kubectl", "--namespace", "kube-system", "delete", "secret", *secrets)
    assert fault.by_hand == command
    assert fault.act is not None


@pytest.mark.parametrize("statuses", [[], ["deployed"], ["failed"], ["superseded", "deployed"]])
def test_a_release_that_can_be_upgraded_is_left_alone(statuses: list[str]) -> None:
    assert unfinished.release_fault(release(), records(*statuses), in_state=True) is None


def test_a_removal_that_was_cut_off_is_carried_to_its_end() -> None:
    fault = unfinished.release_fault(release(), records("uninstalling"), in_state=True)
    assert fault is not None
    assert fault.by_hand == ("pulumi", "destroy", "--yes", "--target", release().urn)
    assert fault.act is not None


def exported(*creating: tuple[str, str], resources: list[dict[str, object]] | None = None):
    prefix = "urn:pulumi:dev::p::"
    operations = [
        {"type": "creating", "resource": {"urn": f"{prefix}{kind}::{name}", "type": kind}}
        for kind, name in creating
    ]
    gone = {"type": "deleting", "resource": {"urn": "urn:pulumi:dev::p::x:y:Z::z", "type": "x:y:Z"}}
    # Those that are no creates are dropped by the next run itself.
    return {"deployment": {"resources": resources or [], "pending_operations": [*operations, gone]}}


def test_a_create_that_finds_what_is_there_is_cleared_and_another_is_looked_at() -> None:
    state = unfinished.read_state(exported(*CASES["creates"]))
    acts = [fault.act for fault in unfinished.create_faults(state)]
    assert acts == [*[unfinished.clear_creates] * 4, None]


def test_a_release_that_the_state_has_is_not_taken_for_a_lost_one() -> None:
    kind = "kubernetes:helm.sh/v3:Release"
    here = {"urn": release().urn, "type": kind}
    # As after a later run that had made it: the note of the first create stays all the same.
    made = unfinished.read_state(exported((kind, "kata"), resources=[here]))
    assert made.lost_releases == ()
    assert len(made.releases) == 1
    lost = unfinished.read_state(exported((kind, "kata")))
    assert [one.name for one in lost.lost_releases] == ["kata"]


def test_a_kubeconfig_is_read_through_the_marks_of_secrets() -> None:
    mark = {SECRET_MARK: "1b47061264138c4ac30d75fd1eb44270"}
    inner = {**mark, "plaintext": '"the kubeconfig"'}
    outer = {**mark, "plaintext": json.dumps(inner)}
    urn = "urn:pulumi:dev::p::pulumi:providers:kubernetes::cluster"
    inputs = {"kubeconfig": outer}
    made = {"urn": urn, "type": "pulumi:providers:kubernetes", "id": "1-2", "inputs": inputs}
    state = unfinished.read_state(exported(resources=[made]))
    assert state.kubeconfigs == {f"{urn}::1-2": "the kubeconfig"}
