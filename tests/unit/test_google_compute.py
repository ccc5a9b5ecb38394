"""Calls of the Compute API, and one machine: as whom, in which zone, and until when it is waited for."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import google.auth
import pytest

from gpuclusters.core.errors import CommandTimeoutError, InvalidAnswerError, UnreachableError
from gpuclusters.core.finding import Refused as RefusedError
from gpuclusters.gcp import api, placement
from gpuclusters.gcp.api import GoogleCompute, GoogleCredentials, GoogleRest
from gpuclusters.gcp.model import ApiError, GcpMachineInputs, Instance, Refused
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting
from tests.providers.compute_double import TOKEN, Cloud, compute_double

A, B, C = ZONES = ("us-central1-a", "us-central1-b", "us-central1-c")
BODY = {"name": "gpu-1", "labels": {"gpu-clusters-owner": "o"}, "machineType": "n1-standard-8"}
MACHINE = beside(__file__, "gcp_machine.yaml")


def test_who_is_logged_in_is_asked_for_a_token_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN", raising=False)
    found, asked = SimpleNamespace(valid=False, token=""), list[object]()

    def refresh(request: object) -> None:
        asked.append(request)
        vars(found).update(valid=True, token="issued")

    found.refresh = refresh
    monkeypatch.setattr(google.auth, "default", lambda **_: (found, "p"))
    credentials = GoogleCredentials()
    assert {credentials.token() for _ in range(3)} == {"issued"}
    assert len(asked) == 1


@pytest.fixture(scope="module")
def double() -> Iterator[Cloud]:
    with compute_double() as made:
        yield made


@pytest.fixture
def cloud(double: Cloud) -> Cloud:
    double.reset()
    return double


@pytest.fixture
def waited() -> list[float]:
    return []


@pytest.fixture
def compute(cloud: Cloud, waited: list[float]) -> GoogleCompute:
    return GoogleCompute(GoogleRest(lambda: TOKEN, cloud.url, waited.append))


def test_a_call_that_was_limited_is_made_again_also_if_it_changes_something(
    cloud: Cloud, compute: GoogleCompute, waited: list[float]
) -> None:
    cloud.limited = 3
    compute.insert("p", A, BODY, 60)
    assert len(waited) == 3
    assert waited[0] < waited[2]
    assert list(cloud.instances) == [(A, "gpu-1")]
    cloud.limited = 100
    with pytest.raises(ApiError, match="Rate Limit Exceeded"):
        compute.insert("p", A, BODY, 60)
    assert len(waited) == 3 + 6


def test_an_operation_that_takes_too_long_goes_on_at_google(
    cloud: Cloud, compute: GoogleCompute
) -> None:
    cloud.stuck = True
    with pytest.raises(CommandTimeoutError, match="goes on at Google"):
        compute.insert("p", A, BODY, 0)


def test_nobody_who_answers_and_no_json_are_said(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_RETRIES", api._RETRIES.new(backoff_factor=0))
    gone = GoogleRest(lambda: TOKEN, "http://127.0.0.1:1/compute/v1/", lambda _: None)
    with pytest.raises(UnreachableError, match="no answer"):
        gone.operate("POST", "projects/p/zones/z/instances", {}, 1)
    cloud.nonsense = True
    with pytest.raises(InvalidAnswerError, match="no JSON: '<html>proxy'"):
        GoogleRest(lambda: TOKEN, cloud.url, lambda _: None).get("projects/p")


def test_a_token_never_goes_where_it_can_be_read() -> None:
    with pytest.raises(InvalidAnswerError, match="it is not https"):
        GoogleRest(lambda: TOKEN, "http://compute.example.com/")


@pytest.mark.parametrize(("code", "message", "kind"), beside(__file__, "google_answers.yaml"))
def test_which_answers_send_a_machine_to_the_next_zone(code: str, message: str, kind: str) -> None:
    assert ApiError(400, code, message).kind is Refused[kind]


@dataclass(kw_only=True)
class Passing(Waiting):
    """Time in which a machine gets these statuses, one after the other, as often as somebody waits."""

    cloud: Cloud
    statuses: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.statuses:
            (live,) = self.cloud.instances.values()
            live["status"] = self.statuses.pop(0)


def ensure(compute: GoogleCompute, time: Waiting, **changes: Any) -> Instance:
    wanted = GcpMachineInputs.model_validate({**MACHINE, "zones": ZONES, **changes})
    return placement.Machine(wanted, compute, time, time).ensure()


@pytest.mark.parametrize("stock", [{A}, {B, C}, {C}], ids=["a", "b,c", "c"])
def test_the_first_zone_with_stock_in_the_order_given_is_taken_and_kept_in_any_order(
    cloud: Cloud, compute: GoogleCompute, stock: set[str]
) -> None:
    for order in permutations(ZONES):
        cloud.reset()
        cloud.refuses = dict.fromkeys({*ZONES} - stock, ("STOCKOUT", "not enough resources"))
        time, first = Waiting(), next(zone for zone in order if zone in stock)
        assert ensure(compute, time, zones=order).zone == first
        assert cloud.inserts() == list(order[: order.index(first) + 1])
        assert len(time.notes) == order.index(first)
        for again in (*permutations(ZONES), ("us-central1-f",)):
            assert ensure(compute, Waiting(), zones=again).zone == first
        assert len(cloud.inserts()) == order.index(first) + 1


@pytest.mark.parametrize(
    ("before", "then", "started"),
    [("STAGING", ["STAGING", "RUNNING"], 0), ("STOPPING", ["TERMINATED"], 1)],
)
def test_a_machine_that_starts_is_waited_for_and_one_that_stops_is_started_after(
    cloud: Cloud, compute: GoogleCompute, before: str, then: list[str], started: int
) -> None:
    cloud.add(A, BODY, before)
    time = Passing(cloud=cloud, statuses=[*then])
    assert ensure(compute, time).status == "RUNNING"
    assert len([call for call in cloud.calls if call.endswith("/start")]) == started
    assert not cloud.inserts()
    assert time.time == len(then) * placement.POLL_SECONDS


def test_a_machine_that_never_runs_is_given_up(cloud: Cloud, compute: GoogleCompute) -> None:
    cloud.add(A, BODY, "PROVISIONING")
    time = Waiting()
    with pytest.raises(RefusedError, match="it is PROVISIONING after 60 s"):
        ensure(compute, time)
    assert 60 <= time.time < 70


def test_a_spot_machine_that_is_taken_back_at_once_is_said(
    cloud: Cloud, compute: GoogleCompute
) -> None:
    cloud.add(A, BODY, "STAGING")
    time = Passing(cloud=cloud, statuses=["TERMINATED"])
    with pytest.raises(RefusedError, match="is TERMINATED again: a spot machine was taken back"):
        ensure(compute, time, provisioning="spot")
