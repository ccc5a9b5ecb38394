"""The one loop: what it does in which order, what it refuses, and how it waits."""

from collections.abc import Sequence

import pytest

from gpuclusters.core.converge import Step, converge, poll
from gpuclusters.core.finding import Finding, Level, Refused, refused
from tests.fixtures.waiting import Waiting


class Machine:
    """Parts that are broken, each repaired by the step of its name; `stays`: so many times in vain."""

    target = "hgx-01"

    def __init__(self, *broken: str, blocked: str = "", **stays: int) -> None:
        self.broken = set(broken)
        self.blocked = blocked
        self.stays = stays
        self.done: list[str] = []
        self.looks = 0
        self.steps = {
            "files": Step(self._repair, look=False),
            "unit": Step(self._repair),
            "reboot": Step(self._repair, repeatable=True),
        }

    def observe(self) -> frozenset[str]:
        self.looks += 1
        return frozenset(self.broken)

    def findings(self, live: frozenset[str]) -> list[Finding]:
        found = [
            Finding("a.broken", f"{part} is broken", "look", (part,), Level.REPAIR, part)
            for part in sorted(live)
        ]
        blocked = [Finding("a.in-use", self.blocked, "end it")] if self.blocked else []
        return [*found, *blocked, Finding("a.old", "is old", level=Level.WARN)]

    def _repair(self, _live: frozenset[str], found: Sequence[Finding]) -> None:
        for finding in found:
            self.done.append(finding.step)
            if self.stays.get(finding.step, 0):
                self.stays[finding.step] -= 1
            else:
                self.broken.discard(finding.step)


def test_nothing_is_done_where_nothing_is_wrong() -> None:
    machine = Machine()
    assert converge(machine, Waiting()) == frozenset()
    assert (machine.done, machine.looks) == ([], 1)


def test_steps_are_done_in_their_order_with_a_look_where_one_decides_the_next() -> None:
    machine = Machine("reboot", "unit", "files")
    converge(machine, Waiting())
    assert machine.done == ["files", "unit", "reboot"]
    assert machine.looks == 3, "files and unit after one look, reboot after another, and the last"


def test_what_blocks_is_refused_with_all_reasons_before_anything_is_done() -> None:
    machine = Machine("files", blocked="a GPU is in use")
    with pytest.raises(Refused) as caught:
        converge(machine, Waiting())
    assert str(caught.value) == "hgx-01: a GPU is in use; end it [a.in-use]"
    assert machine.done == []


def test_a_step_that_does_not_help_is_done_once_and_told_with_its_remedy() -> None:
    machine = Machine("unit", unit=9)
    with pytest.raises(Refused, match=r"hgx-01: unit is broken; look \[a.broken\]"):
        converge(machine, Waiting())
    assert machine.done == ["unit"]


def test_a_repeatable_step_is_done_again_and_not_for_ever() -> None:
    machine = Machine("reboot", reboot=2)
    converge(machine, Waiting())
    assert machine.done == ["reboot"] * 3
    with pytest.raises(Refused):
        converge(Machine("reboot", reboot=99), Waiting())


def test_drift_that_is_put_back_is_told_once_and_first_steps_are_not() -> None:
    notes = Waiting()
    converge(Machine("files", "unit"), notes, made_before=True)
    warned = "hgx-01: is old [a.old]"
    put_back = ["hgx-01: files is broken; put back", "hgx-01: unit is broken; put back"]
    assert notes.notes == [*put_back, warned]
    first = Waiting()
    converge(Machine("files"), first)
    assert first.notes == [warned]


def waited(answers: Sequence[str], *, timeout: float = 60, looks: int = 1) -> tuple[str, Waiting]:
    """What is left after looks that find these problems, one after the other, and then the last for ever."""
    left, waiting = list(answers), Waiting()

    def look() -> list[Finding]:
        said = left.pop(0) if len(left) > 1 else left[0]
        level = Level.BLOCK if said.startswith("!") else Level.REPAIR
        return [Finding("a.b", said, level=level)] if said else []

    found = poll(look, "node", timeout, 5, waiting, waiting, looks=looks)
    return ",".join(f.problem for f in found), waiting


def test_it_waits_until_nothing_is_found_and_tells_each_change_once() -> None:
    left, waiting = waited(["not there", "not there", "not ready", ""])
    assert (left, waiting.time) == ("", 15)
    assert waiting.notes == [
        "node: waiting for: not there (0s of 1m00s)",
        "node: waiting for: not ready (10s of 1m00s)",
    ]


def test_what_is_waited_for_is_told_again_less_and_less_often() -> None:
    _, waiting = waited(["not there"], timeout=600)
    assert [line.split("(")[1] for line in waiting.notes] == [
        f"{passed} of 10m00s)" for passed in ("0s", "1m00s", "2m00s", "4m00s", "8m00s")
    ]


@pytest.mark.parametrize(
    ("answers", "how", "left", "seconds"),
    [
        (["never"], {"timeout": 20}, "never", 20),
        # What waiting cannot mend ends it at once.
        (["not there", "!failed"], {}, "!failed", 5),
        # Several looks in a row have to find nothing.
        (["", "flaps", "", ""], {"looks": 2}, "", 15),
    ],
)
def test_it_waits_no_longer_than_it_has_to(
    answers: list[str], how: dict[str, int], left: str, seconds: float
) -> None:
    found, waiting = waited(answers, **how)
    assert (found, waiting.time) == (left, seconds)


def test_every_reason_of_a_refusal_is_a_line_with_its_code() -> None:
    findings = [Finding("a.b", "one", "do this"), Finding("a.c", "two")]
    assert str(Refused("hgx-01", findings)) == "hgx-01: one; do this [a.b]\nhgx-01: two [a.c]"
    assert str(refused("x", "adopt.differs", "one", "do")) == "x: one; do [adopt.differs]"
