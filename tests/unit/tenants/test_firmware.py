"""What a tenant could have left behind in firmware and knobs; that no inventory hides an item."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuclusters.lease.firmware import (
    Golden,
    InventoryError,
    Listing,
    firmware_findings,
    knob_findings,
    version_of,
)
from tests.fixtures.tables import beside

CASES = beside(__file__, "firmware.yaml")
GOLDEN = Golden.model_validate(CASES["golden"])
INVENTORY: dict[str, Any] = CASES["inventory"]


@pytest.mark.parametrize("case", CASES["gpus"].values(), ids=CASES["gpus"])
def test_what_is_found_of_a_gpu(case: dict[str, Any]) -> None:
    found = firmware_findings(GOLDEN, case["module"], INVENTORY | case.get("other", {}))
    assert list(found) == case["found"]


def test_a_knob_that_is_turned_or_not_read_is_a_finding() -> None:
    assert knob_findings(GOLDEN, {"ecc": "enabled", "mig": "disabled", "cc": "on"}) == ()
    assert knob_findings(GOLDEN, {"ecc": "disabled"}) == (
        "ecc is disabled, must be enabled",
        "mig is not stated, must be disabled",
    )


def test_what_firmware_says_of_itself_cannot_flood_or_forge_a_message() -> None:
    (finding,) = firmware_findings(
        GOLDEN, 1, INVENTORY | {"HGX_FW_GPU_SXM_1": "x\n\x1b[31m" + "y" * 10_000}
    )
    assert len(finding) < 200
    assert finding.isprintable()


PLACE = "https://10.0.0.9:8443"
FOLDER = "/redfish/v1/UpdateService/FirmwareInventory"
ACCEPTED = Golden(versions={"FW_": ("1",)})
ITEMS = {"FW_GPU_1": "1", "FW_BMC_0": "2", "FW_CPLD_0": "1", "FW_GPU_2": "1", "Spare_0": "1"}
"""FW_BMC_0 is bad, and concerns every GPU."""

PAGES = [FOLDER, *(f"{FOLDER}?$skip={number}" for number in range(1, 5))]
LINKS = st.sampled_from(
    [
        *PAGES,
        *(f"{PLACE}{page}" for page in PAGES),
        *(page.removeprefix(FOLDER) for page in PAGES),
        *(page.removeprefix("/redfish/v1/UpdateService/") for page in PAGES),
        *(
            "https://10.0.0.9/x",
            "//10.0.0.9/x",
            "http://10.0.0.9:8443/x",
            "https://10.0.0.8:8443/x",
        ),
        *("?again", "#", "..", "https://[", None, 5, [PAGES[1]]),
    ]
)
ADDRESSES = st.sampled_from(
    [
        shape.format(item)
        for item in ITEMS
        for shape in (
            f"{FOLDER}/{{}}",
            f"{PLACE}{FOLDER}/{{}}/",
            "FirmwareInventory/{}",
            "x/{}?y",
        )
    ]
)
MEMBERS = st.lists(ADDRESSES.map(lambda address: {"@odata.id": address}), max_size=5)


@st.composite
def pages(draw: st.DrawFn) -> dict[str, Any]:
    """What the controller has at each address: its items, in whatever order and however often, and links."""
    found = {}
    for page in PAGES:
        found[PLACE + page] = {"Members": draw(MEMBERS), "Members@odata.count": len(ITEMS)}
        if draw(st.booleans()):
            found[PLACE + page]["Members@odata.nextLink"] = draw(LINKS)
    return found


def listed(found: Mapping[str, Any]) -> Mapping[str, str]:
    listing = Listing(PLACE)
    url: str | None = listing.first
    while url is not None:
        url = listing.add(url, found.get(url, {}))
    return listing.items


def _in_order(*parts: list[str]) -> dict[str, Any]:
    """Pages with these items that lead to one another."""
    found: dict[str, Any] = {}
    for number, part in enumerate(parts):
        body: dict[str, Any] = {"Members": [{"@odata.id": f"{FOLDER}/{item}"} for item in part]}
        body["Members@odata.count"] = len(ITEMS)
        if number + 1 < len(parts):
            body["Members@odata.nextLink"] = f"?$skip={number + 1}"
        found[PLACE + PAGES[number]] = body
    return found


@example(_in_order(list(ITEMS)))
@example(_in_order(["FW_GPU_1"], ["FW_GPU_2", "FW_CPLD_0"], ["Spare_0", "FW_BMC_0"]))
@given(pages())
def test_no_order_of_pages_and_links_hides_a_bad_item(found: dict[str, Any]) -> None:
    try:
        items = listed(found)
    except InventoryError:
        return
    versions = {item: version_of(item, {"Id": item, "Version": ITEMS[item]}) for item in items}
    assert any("FW_BMC_0 is 2" in finding for finding in firmware_findings(ACCEPTED, 1, versions))


@given(st.permutations(list(ITEMS)), st.integers(0, 5), st.integers(0, 5))
def test_whatever_the_pages_an_honest_inventory_is_read_whole(
    items: list[str], one: int, two: int
) -> None:
    first, second = sorted((one, two))
    found = _in_order(items[:first], items[first:second], items[second:])
    assert listed(found) == {item: f"{PLACE}{FOLDER}/{item}" for item in ITEMS}


@pytest.mark.parametrize("path", ["", "/", "/bmc"])
def test_reading_begins_at_the_root_of_the_configured_place(path: str) -> None:
    assert Listing(f"{PLACE}{path}").first == f"{PLACE}{FOLDER}"
