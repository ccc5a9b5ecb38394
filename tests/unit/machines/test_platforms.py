"""Presets of machines: complete where a source names addresses, and empty where none does."""

import pytest

from gpuclusters.compat.platforms import PRESETS, Platform, SwitchAccess
from gpuclusters.core.naming import is_pci_address
from gpuclusters.fabric.table import BOARDS


@pytest.mark.parametrize("platform", Platform)
def test_a_preset_knows_all_addresses_or_none(platform: Platform) -> None:
    preset = PRESETS[platform]
    assert preset.baseboard in BOARDS
    assert (preset.switch_pci_id is None) is (preset.switch_access is SwitchAccess.CONNECTX_BRIDGE)
    assert len(preset.gpus) in (0, 8)
    assert len(preset.switches) == (preset.fabric_functions if preset.gpus else 0)
    addresses = [*preset.gpus.values(), *preset.switches, *preset.extra_functions]
    assert all(is_pci_address(address) for address in addresses)
    assert len(set(addresses)) == len(addresses)


def test_modules_of_an_hgx_h100_are_not_in_the_order_of_the_bus() -> None:
    # WP-12736-002: module n is entry index[n] of lspci.
    gpus = PRESETS[Platform.SUPERMICRO_HGX_H100].gpus
    by_bus = sorted(gpus.values())
    assert [by_bus.index(gpus[module]) for module in range(1, 9)] == [4, 6, 5, 7, 0, 2, 1, 3]


def test_a_pci_address_is_written_as_sysfs_writes_it() -> None:
    right = ["0000:0f:00.0", "0000:0f:1f.7"]
    wrong = ["0F:00.0", "0f:00.0", "0000:0f:20.0", "0000:0f:00.8", "0000:0f:00.0\n"]
    assert [text for text in (*right, *wrong) if is_pci_address(text)] == right
