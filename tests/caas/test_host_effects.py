"""A lease and a change of layout on one machine: each sees the other before it acts."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from caas.controllers.host_effects import (
    LOCK,
    LOCKED,
    Done,
    HostEffects,
    mark,
    quarantined,
    withheld,
)
from caas.settings import Gpu, Host
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
HOST = Host.model_construct(
    name="h",
    gpus=tuple(Gpu(module=m, pci=pci, device=str(m)) for m, pci in PCI.items()),
    fabric_manager="127.0.0.1",
)
ENTRIES = frozenset({(1, 1, Phase.ACTIVATING), (3, 1, Phase.ACTIVATING)})
UP: Any = ActivatePartition(3, ENTRIES)  # type: ignore[arg-type]
DOWN = DeactivatePartition(3)
GIVE_BACK = Unfence(frozenset({3, 1}))


class Machine:
    """Remembers what it was told, and ends each program as said."""

    def __init__(self, **ends: Done) -> None:
        self.told: list[list[str]] = []
        self._ends = ends

    async def run(self, command: Sequence[str], *, seconds: float) -> Done:
        self.told.append(list(command))
        return self._ends.get(command[0], Done(0, "", ""))


def done(machine: Machine, effect: Effect) -> Outcome:
    orders = Orders("h", {3: (1, 3)}, (), True, RecyclePolicy.FULL, Golden())
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
    machine = Machine(**{program: Done(code, "", "") for program, code in codes.items()})
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
    outcome = done(Machine(flock=Done(LOCKED, "", "")), effect)
    assert outcome == Failed(effect, "h: the layout is just being changed")


class Board(Machine):
    """Answers what a reading asks for; processes hold some of its GPUs."""

    def __init__(self, *, held: Sequence[int] = (), missing: Sequence[int] = (), said: str = ""):
        super().__init__(
            fmpm=Done(0, '{"partitionInfo": [{"partitionId": 3, "isActive": 1}]}', ""),
            ls=Done(0, f"{PCI[3]}\n0000:00:00.0\n", ""),
        )
        self._held, self._missing, self._said = {f"/dev/vfio/{m}" for m in held}, missing, said

    async def run(self, command: Sequence[str], *, seconds: float) -> Done:
        match command:
            case ["readlink", "-e", *links]:
                there = [m for m, pci in PCI.items() for link in links if pci in link]
                found = [m for m in there if m not in self._missing]
                paths = "".join(f"/sys/kernel/iommu_groups/{m}\n" for m in found)
                self._ends["readlink"] = Done(0 if found == there else 1, paths, "")
            case ["fuser", *nodes]:
                self._ends["fuser"] = Done(0 if self._held & set(nodes) else 1, "", self._said)
        return await super().run(command, seconds=seconds)


def read(board: Board) -> Outcome:
    return done(board, ReadBoard(frozenset()))


@pytest.mark.parametrize("held", [[], [1], [3], [1, 3]])
def test_who_uses_gpus_is_asked_for_all_at_once_and_for_each_where_somebody_does(
    held: list[int],
) -> None:
    board, three = Board(held=held), frozenset({3})
    assert read(board) == Succeeded(
        ReadBoard(frozenset()), BoardSeen(three, three, users=frozenset(held), withheld=three)
    )
    if not held:
        assert sorted(command[0] for command in board.told) == ["fmpm", "fuser", "ls", "readlink"]


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
VERDICTS: dict[str, tuple[int, str, Outcome]] = {
    "an error line beside code 0": (
        0,
        "2026-11-21,20:00:00.123 ERROR    Cannot reset the GPU with SBR as ...",
        Refused(CLEAR, "Cannot reset the GPU with SBR as ..."),
    ),
    "no error line": (0, f"{LOG}Selected GPU 0000:0f:00.0 H100", Succeeded(CLEAR)),
    "knobs": (
        0,
        "\n".join(f"{LOG}GPU 0000:0f:00.0 H100 {line}" for line in STATED),
        Succeeded(KNOBS, {"ecc": "enabled", "mig": "disabled", "cc": "off"}),
    ),
    "it breaks off": (
        1,
        f"Traceback (most recent call last):\n{TIMED_OUT}",
        Refused(CLEAR, "memory_clear_finished"),
    ),
    "it is not there": (127, "sudo: nvidia_gpu_tools.py: command not found", Failed(CLEAR, "")),
    "another one holds the lock": (1, "", Failed(CLEAR, "")),
}


@pytest.mark.parametrize(("code", "log", "outcome"), VERDICTS.values(), ids=VERDICTS)
def test_what_the_tool_says_in_its_log_is_the_verdict_if_it_ran(
    code: int, log: str, outcome: Outcome
) -> None:
    """It breaks off with its last words; what did not run gives no verdict."""
    found = done(Machine(flock=Done(code, "", f"{log}\n" if log else "")), outcome.effect)
    assert type(found) is type(outcome)
    if isinstance(found, Failed | Refused):
        assert outcome.message in found.message
    else:
        assert found == outcome
