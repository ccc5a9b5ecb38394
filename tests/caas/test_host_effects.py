"""A lease and a change of layout on one machine: each sees the other before it acts."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from caas.controllers.host_effects import (
    LOCK,
    LOCKED,
    WITHHELD,
    Done,
    HostEffects,
    mark,
    quarantined,
    withheld,
)
from caas.settings import Gpu, Host
from gpuclusters.fabric.table import Baseboard
from gpuclusters.lease.board import (
    ActivatePartition,
    BoardSeen,
    ClearMemory,
    DeactivatePartition,
    Effect,
    Failed,
    Orders,
    Outcome,
    ReadBoard,
    ReadKnobs,
    Refused,
    Reset,
    Succeeded,
    Unfence,
    Withhold,
)
from gpuclusters.lease.firmware import Golden
from gpuclusters.lease.model import Phase, RecyclePolicy

PCI = {1: "0000:86:00.0", 3: "0000:9b:00.0"}
HOST = Host(
    name="h",
    address="192.0.2.1",
    user="root",
    host_key="",
    baseboard=Baseboard.HGX_H100,
    gpus=tuple(Gpu(module=m, pci=pci, device=str(m)) for m, pci in PCI.items()),
    partitions=(),
    fabric_manager="127.0.0.1",
)
ENTRIES = frozenset({(1, 1, Phase.ACTIVATING), (3, 1, Phase.ACTIVATING)})


UP: Any = ActivatePartition(3, ENTRIES)  # type: ignore[arg-type]
DOWN = DeactivatePartition(3)
GIVE_BACK = Unfence(frozenset({3, 1}))


class Machine:
    """Remembers what it was told, and ends each program as said."""

    def __init__(self, **codes: int) -> None:
        self.told: list[list[str]] = []
        self._codes = codes

    async def run(self, command: Sequence[str], *, seconds: float) -> Done:
        self.told.append(list(command))
        return Done(self._codes.get(command[0], 0), "", "")


def judged(effect: Effect, answer: Done) -> Outcome:
    """How the effect ends if this is what the tool said."""

    class Told(Machine):
        async def run(self, command: Sequence[str], *, seconds: float) -> Done:
            return answer if "nvidia_gpu_tools.py" in command else Done(0, "", "")

    return done(Told(), effect)


def done(machine: Machine, effect: Effect) -> Outcome:
    orders = Orders(
        "h", {3: (1, 3)}, (), keep_active=True, policy=RecyclePolicy.FULL, golden=Golden()
    )
    ssh: Any = machine
    return asyncio.run(HostEffects(HOST, orders, ssh, None).do(effect))


MARK, UNMARK, LOCKING = ["mkdir", "-p"], ["rm", "-rf"], ["flock"]
ALL_WITHHELD = [withheld(PCI[1]), withheld(PCI[3])]


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        # A lease marks its GPUs before it waits for the lock.
        (
            UP,
            [
                (MARK, [mark(PCI[1]), mark(PCI[3])]),
                (LOCKING, ["-a", "3"]),
                (UNMARK, ALL_WITHHELD),
            ],
        ),
        # A partition that nobody leases gets no mark.
        (ActivatePartition(3, frozenset()), [(LOCKING, ["-a", "3"]), (UNMARK, ALL_WITHHELD)]),
        # Once it is reset, a GPU's marks go.
        (
            Reset(1, 2),
            [
                (UNMARK, [mark(PCI[1]), quarantined(PCI[1])]),
                (LOCKING, ["--reset-with-sbr"]),
            ],
        ),
        # It is withheld with the lock, so that nobody has looked before.
        (Withhold((1, 2, Phase.RESETTING)), [(LOCKING, [*MARK, withheld(PCI[1])])]),
        (Withhold((1, 2, Phase.QUARANTINED)), [(LOCKING, [*MARK, quarantined(PCI[1])])]),
        # All GPUs of a partition are withheld before it goes down.
        (DOWN, [(MARK, ALL_WITHHELD), (LOCKING, ["-d", "3"])]),
        (GIVE_BACK, [(UNMARK, ALL_WITHHELD)]),
        # Clearing resets first, by one tool.
        (ClearMemory(1, 1), [(LOCKING, ["--reset-with-sbr", "--clear-memory"])]),
    ],
    ids=["up", "unleased", "reset", "withhold", "close", "down", "give back", "clear"],
)
def test_an_effect_is_these_commands_in_their_order(
    effect: Effect, told: list[tuple[list[str], list[str]]]
) -> None:
    machine = Machine()
    assert done(machine, effect) == Succeeded(effect)
    for command, (first, words) in zip(machine.told, told, strict=True):
        assert command[: len(first)] == first
        assert {*words} <= {*command}
        if first == LOCKING:
            assert {"--nonblock", LOCK} & {*command}
        else:
            assert command == [*first, *words]


def test_what_is_withheld_lies_where_a_change_of_the_layout_looks() -> None:
    assert withheld(PCI[1]).startswith(WITHHELD)
    assert quarantined(PCI[1]).startswith(WITHHELD)


@pytest.mark.parametrize(
    ("codes", "effect", "told"),
    [
        ({"mkdir": 1}, UP, ["mkdir"]),
        ({"flock": 254}, UP, ["mkdir", "flock"]),
        ({"rm": 1}, UP, ["mkdir", "flock", "rm"]),
        ({"mkdir": 1}, DOWN, ["mkdir"]),
        ({"flock": 1}, Withhold((1, 2, Phase.RESETTING)), ["flock"]),
        ({"rm": 1}, GIVE_BACK, ["rm"]),
    ],
)
def test_after_a_step_that_fails_none_follows(
    codes: dict[str, int], effect: Effect, told: list[str]
) -> None:
    machine = Machine(**codes)
    assert isinstance(done(machine, effect), Failed)
    assert [command[0] for command in machine.told] == told


@pytest.mark.parametrize(
    "effect",
    [
        ActivatePartition(3, frozenset()),
        DOWN,
        Withhold((1, 2, Phase.RESETTING)),
        Withhold((1, 2, Phase.QUARANTINED)),
    ],
)
def test_while_the_layout_is_being_changed_a_partition_waits(effect: Effect) -> None:
    outcome = done(Machine(flock=LOCKED), effect)
    assert outcome == Failed(effect, "h: the layout is just being changed")


class Board(Machine):
    """Answers what a reading asks for; processes hold some of its GPUs."""

    def __init__(self, *, held: Sequence[int] = (), missing: Sequence[int] = (), said: str = ""):
        super().__init__()
        self._held = {f"/dev/vfio/{m}" for m in held}
        self._missing = {PCI[m] for m in missing}
        self._said = said

    async def run(self, command: Sequence[str], *, seconds: float) -> Done:
        self.told.append(list(command))
        match command:
            case ["fmpm", *_]:
                active = '{"partitionInfo": [{"partitionId": 3, "isActive": 1}]}'
                return Done(0, active, "")
            case ["readlink", "-e", *links]:
                there = [m for m, pci in PCI.items() for link in links if pci in link]
                found = [m for m in there if PCI[m] not in self._missing]
                paths = "".join(f"/sys/kernel/iommu_groups/{m}\n" for m in found)
                return Done(0 if len(found) == len(links) else 1, paths, "")
            case ["fuser", *nodes]:
                return Done(0 if self._held & set(nodes) else 1, "", self._said)
            case ["ls", _]:
                return Done(0, f"{PCI[3]}\n0000:00:00.0\n", "")
        raise AssertionError(command)


def read(board: Board) -> Outcome:
    return done(board, ReadBoard(frozenset()))


def seen(board: Board) -> BoardSeen:
    outcome = read(board)
    assert isinstance(outcome, Succeeded)
    assert isinstance(outcome.result, BoardSeen)
    return outcome.result


def test_who_uses_gpus_is_asked_once_for_all_where_nobody_does() -> None:
    board = Board()
    assert seen(board) == BoardSeen(
        frozenset({3}), frozenset({3}), users=frozenset(), withheld=frozenset({3})
    )
    assert sorted(command[0] for command in board.told) == ["fmpm", "fuser", "ls", "readlink"]


@pytest.mark.parametrize("held", [[1], [3], [1, 3]])
def test_where_somebody_uses_gpus_each_is_asked_for(held: list[int]) -> None:
    assert seen(Board(held=held)).users == frozenset(held)


@pytest.mark.parametrize(
    ("board", "said"),
    [
        (Board(missing=[3]), f"h: GPU {PCI[3]} has no IOMMU group; is it there?"),
        (Board(said="Cannot stat /dev/vfio/1"), "h: who uses its GPUs is unknown: Cannot stat"),
    ],
    ids=["a GPU is gone", "fuser complains"],
)
def test_what_cannot_be_known_of_one_gpu_is_no_answer_at_all(board: Board, said: str) -> None:
    outcome = read(board)
    assert isinstance(outcome, Failed)
    assert outcome.message.startswith(said)


LOG = "2026-11-21,20:00:00.123 INFO     "
CLEAR, KNOBS = ClearMemory(1, 1), ReadKnobs(1, 1)
TIMED_OUT = "gpu.error.GpuPollTimeout: GPU 0000:b8:00.0 Timed out polling memory_clear_finished"
STATED = ("ECC is enabled", "MIG mode is disabled", "CC mode is off")


@pytest.mark.parametrize(
    ("effect", "log", "outcome"),
    [
        (
            CLEAR,
            "2026-11-21,20:00:00.123 ERROR    Cannot reset the GPU with SBR as ...",
            Refused(CLEAR, "Cannot reset the GPU with SBR as ..."),
        ),
        (CLEAR, f"{LOG}Selected GPU 0000:0f:00.0 H100", Succeeded(CLEAR)),
        (
            KNOBS,
            "\n".join(f"{LOG}GPU 0000:0f:00.0 H100 {line}" for line in STATED),
            Succeeded(KNOBS, {"ecc": "enabled", "mig": "disabled", "cc": "off"}),
        ),
    ],
    ids=["an error line beside code 0", "no error line", "knobs"],
)
def test_what_the_tool_says_in_its_log_is_the_verdict(
    effect: Effect, log: str, outcome: Outcome
) -> None:
    assert judged(effect, Done(0, "", f"{log}\n")) == outcome


@pytest.mark.parametrize(
    ("code", "log", "kind", "said"),
    [
        (1, f"Traceback (most recent call last):\n{TIMED_OUT}\n", Refused, "memory_clear_finished"),
        (127, "sudo: nvidia_gpu_tools.py: command not found\n", Failed, ""),
        (1, "", Failed, ""),
    ],
    ids=["it breaks off", "it is not there", "another one holds the lock"],
)
def test_a_tool_that_did_not_run_gives_no_verdict_and_one_that_broke_off_does(
    code: int, log: str, kind: type[Failed | Refused], said: str
) -> None:
    outcome = judged(CLEAR, Done(code, "", log))
    assert isinstance(outcome, kind)
    assert said in outcome.message
