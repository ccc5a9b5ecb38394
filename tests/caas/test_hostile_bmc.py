"""A management controller that lies about its firmware, breaks off, or never ends: no GPU is verified."""

import asyncio
import gzip
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from caas.controllers import redfish
from caas.controllers.host_effects import HostEffects
from caas.controllers.redfish import Redfish
from caas.settings import Host
from gpuclusters.lease import board
from gpuclusters.lease.firmware import Golden, firmware_findings
from gpuclusters.lease.model import RecyclePolicy
from tests.caas import leasekit
from tests.caas.hostile_bmc import (
    BAD,
    GOOD,
    INVENTORY,
    HostileBmc,
    broken_off,
    document,
    hostile_bmc,
    page,
    sent,
)
from tests.caas.loops import QuickLoop
from tests.fixtures.tables import beside

DATA = beside(__file__, "test_hostile_bmc.attacks.yaml")
GPU, OTHER = DATA["gpu"], DATA["other"]
GOLDEN = Golden(versions={"HGX_FW_": (GOOD,)})
Prepare = Callable[[HostileBmc], None]


async def reading(
    bmc: HostileBmc, *, seconds: float = 60, also_believed: str = ""
) -> board.Outcome:
    """How the reading of GPU 1's firmware ends, as the lease machine is told; the machine is not asked."""
    limits = board.Limits(verifying=seconds)
    orders = board.Orders("hgx-01", {}, (), True, RecyclePolicy.FULL, GOLDEN, limits)
    host = Host.model_construct(name="hgx-01", fabric_manager="", gpus=())
    nobody: Any = None
    client = Redfish(bmc.url, "admin", "password", f"{bmc.certificate}\n{also_believed}")
    try:
        return await HostEffects(host, orders, nobody, client).do(board.ReadFirmware(1, 1))
    finally:
        await client.close()


def read(folder: Path, prepare: Prepare, seconds: float = 60) -> board.Outcome:
    async def act() -> board.Outcome:
        async with hostile_bmc(folder) as bmc:
            bmc.has({GPU: GOOD, OTHER: GOOD})
            prepare(bmc)
            return await reading(bmc, seconds=seconds)

    return asyncio.run(act())


def ended(outcome: board.Outcome, kind: str, reason: str | None) -> str:
    """What is said of it, if it ended like this."""
    assert isinstance(outcome, board.Failed | board.Refused)
    assert (type(outcome).__name__, outcome.reason) == (kind, reason)
    return outcome.message


def number_of(target: str) -> int:
    """Which page of many it is."""
    return int(target.rpartition("=")[2]) if "=" in target else 0


def first(body: Any) -> Prepare:
    """The controller answers with this where its inventory begins."""

    def prepare(bmc: HostileBmc) -> None:
        bmc.answers[INVENTORY] = body

    return prepare


@pytest.mark.attack(
    by="a BMC",
    tries="lists changed firmware on a second page, behind each kind of link",
    stopped_by="links of its own are followed, whatever their form",
)
@pytest.mark.parametrize(
    "link",
    [
        "{url}" + INVENTORY + "?$skip=1",
        INVENTORY + "?$skip=1",
        "FirmwareInventory?$skip=1",
        "./FirmwareInventory/../FirmwareInventory?$skip=1",
        "?$skip=1",
        "//{place}" + INVENTORY + "?$skip=1",
    ],
)
def test_a_bad_item_on_the_second_page_is_found(tmp_path: Path, link: str) -> None:
    def prepare(bmc: HostileBmc) -> None:
        place = bmc.url.removeprefix("https://")
        bmc.has({OTHER: BAD})
        to = link.format(url=bmc.url, place=place)
        bmc.answers[INVENTORY] = page([GPU], count=2, next=to)
        bmc.answers[f"{INVENTORY}?$skip=1"] = page([OTHER], count=2)

    outcome = read(tmp_path, prepare)
    assert isinstance(outcome, board.Succeeded)
    assert outcome.result == {GPU: GOOD, OTHER: BAD}
    (finding,) = firmware_findings(GOLDEN, 1, {GPU: GOOD, OTHER: BAD})
    assert finding == f"{OTHER} is {BAD}, accepted is {GOOD}"


ELSEWHERE: dict[str, tuple[str, Callable[[str], Any]]] = {
    "next": ("InventoryLinkRefused", lambda link: page([GPU], count=2, next=link)),
    "item": ("InventoryLinkRefused", lambda link: page([]) | {"Members": [{"@odata.id": link}]}),
    "redirect": ("InventoryRedirected", lambda link: document({}, 307, Location=link)),
}


@pytest.mark.attack(
    by="a BMC",
    tries="sends the reader, and with it the login, to another place by a link or a redirect",
    stopped_by="another scheme, host or port is never asked, and the GPU is quarantined",
)
@pytest.mark.parametrize("way", ELSEWHERE)
@pytest.mark.parametrize(
    "link",
    [
        "https://localhost:{port}",
        "https://127.0.0.1:{other}",
        "//127.0.0.1:{other}",
        "http://127.0.0.1:{port}",
        "https://127.0.0.1:{port}@127.0.0.1:{other}",
    ],
)
def test_the_login_goes_nowhere_else(tmp_path: Path, way: str, link: str) -> None:
    reason, answer = ELSEWHERE[way]

    async def act() -> board.Outcome:
        async with hostile_bmc(tmp_path / "a") as bmc, hostile_bmc(tmp_path / "b") as trap:
            ports = (bmc.url.rpartition(":")[2], trap.url.rpartition(":")[2])
            to = link.format(port=ports[0], other=ports[1]) + f"{INVENTORY}/{OTHER}"
            bmc.answers[INVENTORY] = answer(to)
            # Both places would be believed: it is not the certificate that stops it.
            outcome = await reading(bmc, also_believed=trap.certificate)
            assert trap.asked == []
            assert bmc.asked == [INVENTORY]
            return outcome

    said = ended(asyncio.run(act()), "Refused", reason)
    assert "hgx-01: the BMC 127.0.0.1:" in said
    assert "then recheck" in said


async def without_end(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()


def named(what: str) -> Any:
    match what:
        case "pages without end":
            return lambda target: page(
                [f"X_{number_of(target)}"], count=10**6, next=f"?$skip={number_of(target) + 1}"
            )
        case "bytes without end":
            return without_end
        case "5000 items":
            return page([f"X_{number}" for number in range(5000)])
        case "packed":
            return sent(gzip.compress(b" " * 50_000_000), Content_Encoding="gzip")
        case "broken off":
            return broken_off
        case "no text":
            return sent(b"\xff\xfe")
        case "nested":
            return sent(b"[" * 100_000)
    raise AssertionError(what)


def answer_of(bmc: HostileBmc, row: Any) -> Any:
    match row:
        case str():
            return named(row)
        case {"text": text}:
            return sent(text.encode())
        case {"document": body}:
            return document(body)
    changes = {key: value for key, value in row.items() if key == "Members"}
    how = {key: value for key, value in row.items() if key in ("count", "next")}
    if isinstance(link := how.get("next"), str):
        how["next"] = link.replace("{url}", bmc.url)
    return page(row["items"], **how) | changes


CASES = {
    f"{name}: {case}": attack | row
    for name, attack in DATA["attacks"].items()
    for case, row in attack["cases"].items()
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_inventory_that_lies_is_not_believed(tmp_path: Path, case: Mapping[str, Any]) -> None:
    def prepare(bmc: HostileBmc) -> None:
        for where, row in case["answers"].items():
            if where == "*":
                bmc.otherwise = answer_of(bmc, row)
            else:
                bmc.answers[INVENTORY + where] = answer_of(bmc, row)

    said = ended(read(tmp_path, prepare), case["ends"], case["says"])
    assert "hgx-01: the BMC 127.0.0.1:" in said


@pytest.mark.attack(
    by="a BMC",
    tries="drips its answer, or takes its time for each of many pages",
    stopped_by="one deadline over all pages and items, then quarantine",
)
def test_a_slow_inventory_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "REQUEST_SECONDS", 0.5)

    async def dripping(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{")
        while True:
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(b" ")

    def late(target: str) -> Any:
        async def write(writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.1)
            number = number_of(target)
            writer.write(document(page([f"X_{number}"], count=90, next=f"?$skip={number + 1}")))
            await writer.drain()

        return write

    def lates(bmc: HostileBmc) -> None:
        bmc.otherwise = late

    for number, (prepare, seconds) in enumerate([(first(dripping), 60), (lates, 3)]):
        ended(read(tmp_path / str(number), prepare, seconds), "Failed", "InventorySlow")


def test_a_bmc_that_never_answers_is_silent_and_not_slow(tmp_path: Path) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    said = ended(read(tmp_path, first(silence), seconds=1), "Failed", None)
    assert "does not answer: no answer in time" in said


def test_messages_hold_little_of_what_a_bmc_says(tmp_path: Path) -> None:
    link = f"https://attacker.example/\u202e{'x' * 5000}"
    said = ended(read(tmp_path, first(page([GPU], next=link))), "Refused", "InventoryLinkRefused")
    assert len(said) < 600
    assert "\u202e" not in said


@pytest.mark.attack(
    by="a BMC",
    tries="has its inventory taken for a good one by a foreign link or an answer broken off",
    stopped_by="every GPU of the machine is quarantined, with the reason and what to do",
)
@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (page([], count=1, next="https://attacker.example/"), "InventoryLinkRefused", "read the"),
        (broken_off, "InventoryTruncated", "check the network"),
    ],
    ids=["at once", "when time is up"],
)
def test_a_bmc_that_is_not_believed_closes_its_gpus_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any, reason: str, said: str
) -> None:
    outcome = read(tmp_path, first(answer))

    async def story() -> dict[int, leasekit.Lease]:
        async with leasekit.in_memory(monkeypatch, phases={"verifying": 3}) as (lab, memory):
            memory.machine.says = lambda effect: (
                replace(outcome, effect=effect) if isinstance(effect, board.ReadFirmware) else None
            )
            await lab.until(leasekit.phase_is("Quarantined", *range(1, 9)))
            return await lab.leases()

    with asyncio.Runner(loop_factory=QuickLoop) as runner:
        leases = runner.run(story())
    assert {lease["reason"] for lease in leases.values()} == {reason}
    for lease in leases.values():
        assert "hgx-01: the BMC 127.0.0.1:" in lease["message"]
        assert said in lease["message"]
