"""What the device plugin answers, given leases: examples, and rules that hold for every board."""

from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuclusters.device_plugin.decide import (
    KUBELET_AGREES,
    Action,
    Board,
    Correction,
    DeviceView,
    Grant,
    PodName,
    Refusal,
    decide,
    is_healthy,
    preferred,
    reconcile,
)
from gpuclusters.fabric.table import TABLES, Baseboard
from gpuclusters.lease.model import GPULeaseStatus, Holder, Phase

TABLE = TABLES[Baseboard.HGX_H100]
SINCE = "2026-11-21T10:00:00Z"


def holder(
    partition: int, *, admitted: bool = True, allocated: bool = False, pod: str = ""
) -> Holder:
    name = pod or f"p{partition}"
    return Holder(
        tenant="a", namespace="t-a", pod=name, pod_uid=f"uid-{name}", container="c",
        partition=partition, gpus=TABLE.partition(partition).modules,
        admitted=admitted, allocated=allocated,
    )  # fmt: skip


def device(
    module: int, phase: Phase = Phase.FREE, held: Holder | None = None, *, marked: bool = False
) -> DeviceView:
    conditions = [{"type": KUBELET_AGREES, "status": "False", "reason": "x"}] if marked else []
    status = GPULeaseStatus.model_validate(
        {"phase": phase, "since": SINCE, "cycle": 1, "holder": held, "conditions": conditions,
         "reason": "x"}
    )  # fmt: skip
    return DeviceView(str(10 + module), module, status)


def board(
    *changed: DeviceView,
    listed: Mapping[str, Collection[PodName]] | None = None,
    stale: bool = False,
) -> Board:
    by_module = {view.module: view for view in changed}
    devices = tuple(by_module.get(module, device(module)) for module in range(1, 9))
    return Board("hgx-01", devices, TABLE.partitions, listed or {}, stale)


def leased(partition: int, **options: bool) -> list[DeviceView]:
    held = holder(partition, **options)  # type: ignore[arg-type]
    return [device(module, Phase.LEASED, held) for module in held.gpus]


def healthy(here: Board) -> set[int]:
    return {view.module for view in here.devices if is_healthy(here, view)}


def test_a_gpu_is_healthy_on_its_way_to_a_pod_and_unhealthy_on_its_way_back() -> None:
    assert healthy(board()) == set(range(1, 9))
    assert healthy(board(*leased(3))) == set(range(1, 9))
    held = holder(3)
    unhealthy = {phase for phase in Phase if 1 not in healthy(board(device(1, phase, held)))}
    assert unhealthy == {
        Phase.RELEASING,
        Phase.RESETTING,
        Phase.SCRUBBING,
        Phase.VERIFYING,
        Phase.QUARANTINED,
    }


STRANGER, OWN = PodName("t-b", "x"), PodName("t-a", "p3")


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        (board(DeviceView("11", 1, None)), set(range(2, 9))),
        (board(*leased(3, allocated=True), *leased(4), stale=True), {1, 3}),
        (board(listed={"11": {STRANGER}}), set(range(2, 9))),
        (board(*leased(3, allocated=True), listed={"11": {STRANGER}}), set(range(2, 9))),
        (board(*leased(3, allocated=True), listed={"11": {OWN}}), set(range(1, 9))),
    ],
    ids=["no lease", "leases cannot be read", "listed for one", "listed for another", "its own"],
)
def test_gpus_are_healthy_where_lease_and_kubelet_agree(here: Board, expected: set[int]) -> None:
    assert healthy(here) == expected


def test_the_group_that_waits_is_preferred_and_given_whole() -> None:
    here = board(*leased(3))
    everything = [view.device for view in here.devices]
    assert preferred(here, everything, (), 2) == ("11", "13")
    answer = decide(here, ["13", "11"])
    assert isinstance(answer, Grant)
    assert answer.pod == PodName("t-a", "p3")
    assert [view.device for view in answer.devices] == ["13", "11"]


def test_without_a_waiting_group_the_choice_breaks_the_least() -> None:
    # Half of the board is in use, as is one pair of the other half: the single GPU comes from that pair's
    # rest, not from the pair that is whole.
    taken = [*leased(2, allocated=True), *leased(7, allocated=True)]
    here = board(*taken)
    free = ["12", "13", "14"]
    assert preferred(here, free, (), 1) == ("13",)
    assert preferred(here, free, (), 2) == ("12", "14")
    assert preferred(here, free, ("14",), 1) == ("14",)
    assert preferred(here, free, (), 4) == ()


@pytest.mark.parametrize(
    ("here", "asked", "words"),
    [
        (board(*leased(3)), ["11"], "leased GPUs 1, 3 together, not 1"),
        (board(*leased(3)), ["11", "12"], "is Free, not leased"),
        (board(*leased(1)), ["11", "12"], "leased GPUs 1, 2, 3, 4 together"),
        (board(*leased(3), *leased(4)), ["11", "12", "13", "14"], "leased to several pods"),
        (board(*leased(3, allocated=True)), ["11", "13"], "allocated to pod t-a/p3 already"),
        (board(*leased(3, admitted=False)), ["11", "13"], "not let go"),
        (board(), ["99"], "no GPU 99"),
        (board(), [], "at least one"),
        (board(*leased(3)), ["11", "13", "11"], "each GPU once"),
        (board(DeviceView("11", 1, None)), ["11"], "has no lease"),
        (board(device(1, Phase.QUARANTINED)), ["11"], "is Quarantined"),
        (board(*leased(3), listed={"13": {STRANGER}}), ["11", "13"], "still with pod t-b/x"),
        (board(*leased(3), stale=True), ["11", "13"], "cannot be read"),
    ],
)
def test_anything_but_the_leased_group_is_refused(
    here: Board, asked: list[str], words: str
) -> None:
    answer = decide(here, asked)
    assert isinstance(answer, Refusal)
    assert words in answer.message


ENDED = device(1, Phase.RELEASING, holder(7, allocated=True))
CLOSED = device(1, Phase.QUARANTINED, holder(7, allocated=True))
MARKED = device(1, Phase.QUARANTINED, marked=True)


CORRECTIONS: dict[str, tuple[Board, Collection[str], list[Correction]]] = {
    "still listed": (board(ENDED, listed={"11": {PodName("t-a", "p7")}}), (), []),
    "just given": (board(ENDED), {"11"}, []),
    "over": (board(ENDED), (), [Correction(Action.CLEAR, ENDED)]),
    "over and closed": (board(CLOSED), (), [Correction(Action.CLEAR, CLOSED)]),
    "given to another": (
        board(ENDED, listed={"11": {STRANGER}}),
        (),
        [Correction(Action.DISAGREE, ENDED, STRANGER)],
    ),
    "running": (board(*leased(3, allocated=True)), (), []),
    "free and given": (
        board(listed={"11": {STRANGER}}),
        (),
        [Correction(Action.DISAGREE, device(1), STRANGER)],
    ),
    "marked, and the lease controller has not acted on it": (board(device(1, marked=True)), (), []),
    "marked and closed": (board(MARKED), (), [Correction(Action.AGREE, MARKED)]),
    "given to its pod": (
        board(*leased(3), listed={"11": {OWN}}),
        (),
        [Correction(Action.ADOPT, leased(3)[0])],
    ),
}


@pytest.mark.parametrize(("here", "unseen", "found"), CORRECTIONS.values(), ids=CORRECTIONS)
def test_what_the_kubelet_lists_corrects_the_leases(
    here: Board, unseen: Collection[str], found: list[Correction]
) -> None:
    assert [*reconcile(here, unseen)] == found


@st.composite
def boards(draw: st.DrawFn) -> Board:
    """Any mixture of phases, holders and marks, sensible or not."""
    devices = []
    for module in range(1, 9):
        partitions = [p.id for p in TABLE.partitions if module in p.modules]
        phase = draw(st.sampled_from(Phase))
        held = None
        if draw(st.booleans()):
            held = holder(
                draw(st.sampled_from(partitions)),
                admitted=draw(st.booleans()),
                allocated=draw(st.booleans()),
                pod=draw(st.sampled_from(["x", "y"])),
            )
        whole = device(module, phase, held)
        devices.append(
            DeviceView(whole.device, module, None) if draw(st.integers(0, 9)) == 0 else whole
        )
    pods = st.sampled_from([PodName("t-a", "x"), PodName("t-a", "y"), PodName("t-b", "z")])
    listed = draw(
        st.dictionaries(
            st.sampled_from([d.device for d in devices]), st.frozensets(pods, max_size=2)
        )
    )
    return Board("hgx-01", tuple(devices), TABLE.partitions, listed, draw(st.booleans()))


IDS = [str(10 + module) for module in range(1, 9)]


@given(boards(), st.lists(st.sampled_from([*IDS, "99"]), max_size=8))
def test_what_is_granted_is_one_whole_unallocated_group_and_healthy(
    here: Board, asked: list[str]
) -> None:
    answer = decide(here, asked)
    if isinstance(answer, Refusal):
        assert answer.message
        return
    assert [view.device for view in answer.devices] == asked
    assert {view.holder.pod_uid for view in answer.devices if view.holder} == {answer.pod_uid}
    for view in answer.devices:
        assert view.status is not None
        assert view.status.phase is Phase.LEASED
        assert view.holder is not None
        assert (view.holder.admitted, view.holder.allocated) == (True, False)
        assert set(view.holder.gpus) == {other.module for other in answer.devices}
        assert is_healthy(here, view)
        assert all(pod == answer.pod for pod in here.listed.get(view.device, ()))


@given(boards(), st.sets(st.sampled_from(IDS)), st.integers(1, 8))
def test_a_preference_can_always_be_taken(here: Board, available: set[str], size: int) -> None:
    chosen = preferred(here, available, (), size)
    assert len(chosen) in (0, size)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= available


@given(boards(), st.sets(st.sampled_from(IDS)))
def test_only_an_ended_pods_unlisted_gpus_are_cleared(here: Board, unseen: set[str]) -> None:
    for finding in reconcile(here, unseen):
        if finding.action is Action.CLEAR:
            view = finding.device
            assert view.allocated
            assert view.status is not None
            assert view.status.phase in (Phase.RELEASING, Phase.QUARANTINED)
            assert not here.listed.get(view.device)
            assert view.device not in unseen
