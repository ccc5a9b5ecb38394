"""Reading from a cluster whose API server goes away for a while, as when RKE2 restarts."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from gpuclusters.core.errors import UnreachableError
from gpuclusters.kube import objects as kube_objects
from gpuclusters.kube.objects import KubernetesObjects, PatientObjects
from gpuclusters.proof.manifests import JOB

AWAY = UnreachableError("API server x", "list jobs", "connection refused", "look at it")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the API server does, call by call; what is left tells how often it was asked."""
    script: list[Any] = []
    slept: Iterator[float] = iter(range(0, 100_000, 30))

    def call(self: object, *_: Any, **__: Any) -> tuple[int, dict[str, Any]]:
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return 200, answer

    monkeypatch.setattr(KubernetesObjects, "_call", call)
    # Its clock alone: other threads of this process ask theirs meanwhile.
    clock = SimpleNamespace(sleep=lambda _: None, monotonic=lambda: next(slept))
    monkeypatch.setattr(kube_objects, "time", clock)
    return script


def test_an_api_server_that_was_there_is_waited_for_but_not_for_ever(answers: list[Any]) -> None:
    jobs = PatientObjects.__new__(PatientObjects)
    answers += [{"items": []}, AWAY, AWAY, {"items": [{"metadata": {"name": "j"}}]}]
    assert jobs.list(JOB, "n") == []
    assert [one["metadata"]["name"] for one in jobs.list(JOB, "n")] == ["j"]
    assert answers == []
    answers += [AWAY] * 50
    with pytest.raises(UnreachableError):
        jobs.list(JOB, "n")
    assert len(answers) > 40


def test_one_that_never_answered_is_a_mistake_and_said_at_once(answers: list[Any]) -> None:
    answers += [AWAY, {"items": []}]
    with pytest.raises(UnreachableError):
        PatientObjects.__new__(PatientObjects).list(JOB, "n")
    assert len(answers) == 1


def test_what_changes_something_is_not_done_twice(answers: list[Any]) -> None:
    jobs = PatientObjects.__new__(PatientObjects)
    answers += [{"items": []}, AWAY, {}]
    jobs.list(JOB, "n")
    with pytest.raises(UnreachableError):
        jobs.create(JOB, {"metadata": {"name": "j", "namespace": "n"}})
    assert len(answers) == 1
