"""What is remembered of the cluster, when a program's own writing and its watch overtake one another."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from caas.cluster import Event
from caas.mirror import Mirror
from gpuclusters.tenancy.objects import POD


def pod(version: int, name: str = "c-1", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": str(version), **more}}


def names(found: Mirror) -> set[str]:
    assert set(found.within("n")) == {body["metadata"]["name"] for body in found.all()}
    return set(found.within("n"))


def test_what_was_written_is_there_before_the_watch_tells_of_it() -> None:
    found = Mirror(POD)
    found.wrote(pod(5))
    assert found.get("c-1", "n") == pod(5)
    found.take(Event("ADDED", pod(5)))
    found.take(Event("DELETED", pod(7)))
    assert names(found) == set()


def test_a_late_answer_does_not_undo_a_change() -> None:
    found = Mirror(POD)
    found.take(Event("MODIFIED", pod(6, labels={"new": "yes"})))
    found.wrote(pod(5))
    assert found.get("c-1", "n") == pod(6, labels={"new": "yes"})


def test_what_came_and_went_while_nobody_watched_is_not_kept() -> None:
    found = Mirror(POD)
    found.wrote(pod(5))
    found.wrote(pod(12, "c-2"))
    # A new list, in which it is not; what is newer than the list may yet be told of.
    found.take(Event("SYNC", {"metadata": {"resourceVersion": "10"}, "items": []}))
    assert names(found) == {"c-2"}


def test_what_happened_while_the_watch_was_broken_is_told() -> None:
    told: list[str] = []
    found = Mirror(POD, changed=lambda body: told.append(body["metadata"]["uid"]))
    for version, name in enumerate(("gone", "changed", "same", "anew"), start=1):
        found.take(Event("ADDED", pod(version, name, uid=f"{name}-{version}")))
    told.clear()
    items = [
        pod(3, "same", uid="same-3"),
        pod(6, "changed", uid="changed-2"),
        pod(7, "anew", uid="anew-7"),
        pod(8, "new", uid="new-8"),
    ]
    for body in items:
        found.take(Event("ADDED", body))
    found.take(Event("SYNC", {"metadata": {"resourceVersion": "9"}, "items": items}))
    assert told == ["changed-2", "anew-4", "anew-7", "new-8", "gone-1"]
    assert names(found) == {"same", "changed", "anew", "new"}


def test_an_end_that_was_asked_for_is_seen_unless_more_is_known() -> None:
    found = Mirror(POD)
    found.take(Event("ADDED", pod(5)))
    before = pod(5)  # the same, told of twice
    found.assume(before, pod(5, deletionTimestamp="now"))
    assert found.get("c-1", "n") == pod(5, deletionTimestamp="now")
    found.take(Event("ADDED", pod(5)))
    assert found.get("c-1", "n") == pod(5, deletionTimestamp="now")
    found.take(Event("DELETED", pod(6)))
    found.assume(before, pod(5, deletionTimestamp="now"))
    assert names(found) == set()


def test_what_is_remembered_is_not_what_nobody_reads() -> None:
    found = Mirror(POD)
    found.take(Event("ADDED", pod(5, managedFields=[{"manager": "x" * 1000}])))
    assert found.get("c-1", "n") == pod(5)


@given(st.data())
def test_however_writing_and_watching_interleave_the_end_is_what_the_cluster_has(
    data: st.DataObject,
) -> None:
    """Answers come at any time after the writing, events in their order and after it too."""
    ids = st.sampled_from(["a", "b", "c"])
    steps = data.draw(st.lists(st.tuples(st.booleans(), ids), max_size=12))
    there: dict[str, int] = {}
    events: list[Event] = []
    answers: list[dict[str, Any]] = []
    for version, (create, name) in enumerate(steps, start=1):
        if create and name not in there:
            there[name] = version
            events.append(Event("ADDED", pod(version, name)))
            answers.append(pod(version, name))
        elif not create and name in there:
            del there[name]
            events.append(Event("DELETED", pod(version, name)))
    found = Mirror(POD)
    while events or answers:
        answer = answers and data.draw(st.booleans())
        if answer or not events:
            found.wrote(answers.pop(data.draw(st.integers(0, len(answers) - 1))))
        else:
            found.take(events.pop(0))
    assert names(found) == set(there)
