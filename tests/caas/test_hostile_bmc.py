"""A management controller that lies about its firmware, breaks off, or never ends: no GPU is verified."""

import asyncio
import gzip
from collections.abc import Callable
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
from tests.caas.hostile_bmc import (
    BAD,
    GOOD,
    INVENTORY,
    HostileBmc,
    broken_off,
    document,
    dripping,
    hostile_bmc,
    page,
    status,
    without_end,
)

GOLDEN = Golden(versions={"HGX_FW_": (GOOD,)})
GPU, OTHER = "HGX_FW_GPU_SXM_1", "HGX_FW_BMC_0"
ELSEWHERE = "https://attacker.example"
Prepare = Callable[[HostileBmc], None]


def effects(client: Redfish, seconds: float) -> HostEffects:
    limits = board.Limits(verifying=seconds)
    orders = board.Orders("hgx-01", {}, (), True, RecyclePolicy.FULL, GOLDEN, limits)
    host = Host.model_construct(name="hgx-01", fabric_manager="", gpus=())
    return HostEffects(host, orders, Nobody(), client)


def read(folder: Path, prepare: Prepare, seconds: float = 60) -> board.Outcome:
    """How the reading of GPU 1's firmware ends, as the lease machine is told."""

    async def reading() -> board.Outcome:
        async with hostile_bmc(folder) as bmc:
            bmc.has({GPU: GOOD, OTHER: GOOD})
            prepare(bmc)
            client = Redfish(bmc.url, "admin", "password", bmc.certificate)
            try:
                return await effects(client, seconds).do(board.ReadFirmware(1, 1))
            finally:
                await client.close()

    return asyncio.run(reading())


def ended(
    outcome: board.Outcome, kind: type[board.Failed | board.Refused], reason: str | None
) -> str:
    """What is said of it, if it ended like this."""
    assert isinstance(outcome, kind)
    assert outcome.reason == reason
    return outcome.message


class Nobody:
    """The machine itself, which is not asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def first(body: Any) -> Prepare:
    """The controller answers with this where its inventory begins."""

    def prepare(bmc: HostileBmc) -> None:
        bmc.answers[INVENTORY] = body

    return prepare


def test_an_honest_inventory_is_read(tmp_path: Path) -> None:
    outcome = read(tmp_path, first(page([GPU, OTHER])))
    assert isinstance(outcome, board.Succeeded)
    assert outcome.result == {GPU: GOOD, OTHER: GOOD}


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
    assert isinstance(outcome.result, dict)
    (finding,) = firmware_findings(GOLDEN, 1, outcome.result)
    assert finding == f"{OTHER} is {BAD}, accepted is {GOOD}"


def _item(bmc: HostileBmc, link: str) -> None:
    bmc.answers[INVENTORY] = {"Members": [{"@odata.id": link}], "Members@odata.count": 1}


def _next(bmc: HostileBmc, link: str) -> None:
    bmc.answers[INVENTORY] = page([GPU], count=2, next=link)


def _redirect(bmc: HostileBmc, link: str) -> None:
    bmc.answers[INVENTORY] = status(307, Location=link)


@pytest.mark.attack(
    by="a BMC",
    tries="sends the reader, and with it the login, to another place by a link or a redirect",
    stopped_by="another scheme, host or port is never asked, and the GPU is quarantined",
)
@pytest.mark.parametrize(
    ("way", "reason"),
    [
        (_next, "InventoryLinkRefused"),
        (_item, "InventoryLinkRefused"),
        (_redirect, "InventoryRedirected"),
    ],
)
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
def test_the_login_goes_nowhere_else(
    tmp_path: Path, way: Callable[[HostileBmc, str], None], reason: str, link: str
) -> None:
    async def reading() -> board.Outcome:
        async with hostile_bmc(tmp_path / "a") as bmc, hostile_bmc(tmp_path / "b") as trap:
            ports = (bmc.url.rpartition(":")[2], trap.url.rpartition(":")[2])
            way(bmc, link.format(port=ports[0], other=ports[1]) + f"{INVENTORY}/{OTHER}")
            # Both places would be believed: it is not the certificate that stops it.
            client = Redfish(bmc.url, "admin", "password", f"{bmc.certificate}\n{trap.certificate}")
            try:
                outcome = await effects(client, 60).do(board.ReadFirmware(1, 1))
            finally:
                await client.close()
            assert trap.asked == []
            assert bmc.asked == [INVENTORY]
            return outcome

    said = ended(asyncio.run(reading()), board.Refused, reason)
    assert "hgx-01: the BMC 127.0.0.1:" in said
    assert "then recheck" in said


def _endless(bmc: HostileBmc) -> None:
    def answer(target: str) -> dict[str, Any]:
        number = int(target.rpartition("=")[2]) if "=" in target else 0
        return page([f"HGX_FW_X_{number}"], count=10**6, next=f"?$skip={number + 1}")

    bmc.otherwise = answer


def _round(bmc: HostileBmc) -> None:
    bmc.answers[INVENTORY] = page([GPU], count=2, next="?a")
    bmc.answers[f"{INVENTORY}?a"] = page([OTHER], count=2, next=bmc.url + INVENTORY)


def _crowded(bmc: HostileBmc) -> None:
    bmc.answers[INVENTORY] = page([f"X_{number}" for number in range(5000)])


def _counts_differ(bmc: HostileBmc) -> None:
    bmc.answers[INVENTORY] = page([GPU], count=3, next="?a")
    bmc.answers[f"{INVENTORY}?a"] = page([OTHER], count=2)


def _packed(bmc: HostileBmc) -> None:
    body = gzip.compress(b" " * 50_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    bmc.answers[INVENTORY] = head.encode() + body


@pytest.mark.attack(
    by="a BMC",
    tries="links in a loop, to pages without end, or sends more than can be held, packed or not",
    stopped_by="pages, items and bytes have bounds, and the GPU is quarantined",
)
@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (first(page([GPU], count=2, next=INVENTORY)), "InventoryLooped"),
        (first(page([GPU], count=2, next="")), "InventoryLooped"),
        (_round, "InventoryLooped"),
        (_endless, "InventoryLooped"),
        (first(without_end), "InventoryTooLarge"),
        (_crowded, "InventoryTooLarge"),
        (_packed, "InventoryMalformed"),
    ],
    ids=["itself", "nothing", "round", "endless", "bytes", "items", "packed"],
)
def test_an_inventory_without_end_is_refused(tmp_path: Path, prepare: Prepare, reason: str) -> None:
    ended(read(tmp_path, prepare), board.Refused, reason)


@pytest.mark.attack(
    by="a BMC",
    tries="leaves items out, lists them twice, or breaks its answer off",
    stopped_by="items are counted and told apart; it is asked again, then the GPU is quarantined",
)
@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (first(page([GPU], count=2)), "InventoryIncomplete"),
        (first(page([GPU, OTHER], count=1)), "InventoryIncomplete"),
        (_counts_differ, "InventoryIncomplete"),
        (first(page([GPU, GPU])), "InventoryDuplicated"),
        (first(page([GPU, f"{GPU}/"])), "InventoryDuplicated"),
        (first(page([GPU, GPU.replace("_", "%5F")])), "InventoryDuplicated"),
        (first(page([GPU, f"../Other/{GPU}?x#y"])), "InventoryDuplicated"),
        (first(broken_off), "InventoryTruncated"),
    ],
)
def test_an_inventory_that_is_not_whole_is_not_believed(
    tmp_path: Path, prepare: Prepare, reason: str
) -> None:
    assert "hgx-01: the BMC 127.0.0.1:" in ended(read(tmp_path, prepare), board.Failed, reason)


@pytest.mark.attack(
    by="a BMC",
    tries="drips its answer, or takes its time for each of many pages",
    stopped_by="one deadline over all pages and items, then quarantine",
)
def test_a_slow_inventory_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redfish, "REQUEST_SECONDS", 0.5)

    def late(bmc: HostileBmc) -> None:
        def answer(target: str) -> Callable[[asyncio.StreamWriter], Any]:
            number = int(target.rpartition("=")[2]) if "=" in target else 0

            async def write(writer: asyncio.StreamWriter) -> None:
                await asyncio.sleep(0.1)
                body = page([f"X_{number}"], count=90, next=f"?$skip={number + 1}")
                writer.write(document(body))
                await writer.drain()

            return write

        bmc.otherwise = answer

    for number, (prepare, seconds) in enumerate([(first(dripping), 60), (late, 3)]):
        ended(read(tmp_path / str(number), prepare, seconds), board.Failed, "InventorySlow")


def test_a_bmc_that_never_answers_is_silent_and_not_slow(tmp_path: Path) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    said = ended(read(tmp_path, first(silence), seconds=1), board.Failed, None)
    assert "does not answer: no answer in time" in said


def _text(text: bytes) -> Prepare:
    return first(f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)


def _item_says(**said: Any) -> Prepare:
    def prepare(bmc: HostileBmc) -> None:
        bmc.answers[INVENTORY] = page([GPU])
        bmc.answers[f"{INVENTORY}/{GPU}"] = {"Id": GPU, "Version": GOOD} | said

    return prepare


@pytest.mark.attack(
    by="a BMC",
    tries="answers in other types, other shapes, or for another item",
    stopped_by="each is refused, and the GPU is quarantined",
)
@pytest.mark.parametrize(
    "prepare",
    [
        *map(_text, (b"", b"{", b"[" * 100_000, b"\xff\xfe", b"<html>")),
        *(first(document(body)) for body in ([], "text", {})),
        *(
            first(document(page([GPU]) | {"Members": members}))
            for members in (
                None,
                {"0": 1},
                [None],
                [{"@odata.id": 5}],
                [{"@odata.id": "/"}],
                [{"@odata.id": "https://[::1/x"}],
            )
        ),
        *(first(document(page([GPU], count=count))) for count in ("1", True)),
        *(first(document(page([GPU], next=link))) for link in (None, 5, "https://[oops")),
        *(_item_says(Version=version) for version in (5, [GOOD])),
        *(_item_says(Id=name) for name in (None, OTHER)),
    ],
)
def test_wrong_types_and_what_is_no_json_are_refused(tmp_path: Path, prepare: Prepare) -> None:
    ended(read(tmp_path, prepare), board.Refused, "InventoryMalformed")


def test_messages_hold_little_of_what_a_bmc_says(tmp_path: Path) -> None:
    link = f"{ELSEWHERE}/\u202e{'x' * 5000}"
    outcome = read(tmp_path, first(page([GPU], next=link)))
    assert isinstance(outcome, board.Refused)
    assert len(outcome.message) < 600
    assert "\u202e" not in outcome.message
