"""What a tenant could have left behind in firmware and knobs."""

from gpuclusters.lease.firmware import Golden, concerns, firmware_findings, knob_findings

GOLDEN = Golden(
    versions={"HGX_FW_GPU_": ("96.00.BC.00.01", "96.00.BC.00.02"), "HGX_FW_BMC_": ("1.0",)},
    knobs={"ecc": "enabled", "mig": "disabled"},
)
INVENTORY = {
    "HGX_FW_GPU_SXM_1": "96.00.BC.00.01",
    "HGX_FW_GPU_SXM_2": "96.00.BC.00.66",
    "HGX_FW_GPU_SXM_12": "96.00.BC.00.66",
    "HGX_FW_BMC_0": "1.0",
    "HGX_FW_NVSwitch_1": "anything",
}


def test_a_gpu_with_accepted_versions_has_no_findings() -> None:
    assert firmware_findings(GOLDEN, 1, INVENTORY) == ()


def test_another_version_is_a_finding_on_that_gpu_alone() -> None:
    (finding,) = firmware_findings(GOLDEN, 2, INVENTORY)
    assert finding == (
        "HGX_FW_GPU_SXM_2 is 96.00.BC.00.66, accepted is 96.00.BC.00.01 or 96.00.BC.00.02"
    )


def test_an_item_that_is_missing_is_a_finding() -> None:
    (finding,) = firmware_findings(GOLDEN, 3, INVENTORY)
    assert finding == "the inventory has no item HGX_FW_GPU_* for GPU 3"


def test_an_item_without_a_version_is_a_finding() -> None:
    (finding,) = firmware_findings(GOLDEN, 1, INVENTORY | {"HGX_FW_GPU_SXM_1": None})
    assert finding.startswith("HGX_FW_GPU_SXM_1 is not stated")


def test_firmware_of_the_machine_concerns_each_of_its_gpus() -> None:
    for module in (1, 2):
        found = firmware_findings(GOLDEN, module, INVENTORY | {"HGX_FW_BMC_0": "2.0"})
        assert "HGX_FW_BMC_0 is 2.0, accepted is 1.0" in found


def test_items_belong_to_the_gpu_whose_number_ends_them() -> None:
    assert concerns("HGX_FW_GPU_SXM_1", 1)
    assert concerns("HGX_FW_GPU_1", 1)
    assert concerns("HGX_FW_ERoT_GPU_SXM_1", 1)
    assert not concerns("HGX_FW_GPU_SXM_12", 1)
    assert not concerns("HGX_FW_GPU_SXM_12", 2)
    assert concerns("HGX_FW_NVSwitch_2", 1)
    assert concerns("HGX_FW_BMC_0", 1)


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
