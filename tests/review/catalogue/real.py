"""The changes of the catalogue that are made by changing the configuration of a `caas` stack.

Each is what an operator would write into the stack file, as a function over its section; what the engine
makes of it is in `plans/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Section = dict[str, Any]
HOST_KEYS = {
    "hgx-004": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILS0aTHQR+KcK2oTGUuafLOYvlgPkSSBDRm/hlfx8/Qt",
}


def scale_out(section: Section) -> None:
    section["hosts"]["machines"].append(
        {"name": "hgx-004", "address": "10.20.0.14", "host-key": HOST_KEYS["hgx-004"]}
    )
    section["nodes"].append(
        {
            "name": "hgx-004",
            "partition-layout": [4, 4],
            "kernel": "6.17.0",
            "bmc": {"url": "https://10.21.0.14", "user": "firmware-reader"},
        }
    )


def scale_in(section: Section) -> None:
    section["hosts"]["machines"].pop()
    section["nodes"].pop()


def tenant_added(section: Section) -> None:
    section["tenants"].append({"name": "initech", "gpus": 2, "sizes": [1, 2]})


def tenant_removed(section: Section) -> None:
    section["tenants"] = [t for t in section["tenants"] if t["name"] != "globex"]


def tenant_moved(section: Section) -> None:
    section["tenants"][1]["namespace"] = "customer-globex"


def quota_raised(section: Section) -> None:
    section["tenants"][0]["gpus"] = 16


def quota_lowered(section: Section) -> None:
    section["tenants"][0]["gpus"] = 8
    del section["tenants"][0]["max-container"]


def internet_opened(section: Section) -> None:
    section["tenants"][0]["egress"] = {"internet": True}


def relayout(section: Section) -> None:
    section["nodes"][1]["partition-layout"] = [2, 2, 2, 2]


def by_lease(section: Section) -> None:
    section["partition-layout"] = "by-lease"
    for node in section["nodes"]:
        node.pop("partition-layout", None)


def driver_bumped(section: Section) -> None:
    section["versions"]["fabric-manager"] = "595.71.05"
    section["versions"]["guest-driver"] = "595.71.05"
    section["kata"]["guest-image"] = "custom"
    section["service-vm"]["image"] = {
        "url": "https://images.example.com/fabric-manager-595.71.05.qcow2",
        "sha256": "77" * 32,
    }


def reboot_for_kernel_argument(section: Section) -> None:
    section["preparation"] = {"reboot": "allow", "extra-kernel-arguments": ["pci=realloc"]}


def maintenance(section: Section) -> None:
    section["nodes"][2]["maintenance"] = "evict"


def address_changed(section: Section) -> None:
    section["hosts"]["machines"][0]["address"] = "10.20.0.111"


def image_bumped(section: Section) -> None:
    section["programs"]["image"] = "registry.example.com/gpu-clusters@sha256:" + "ab" * 32


def fewer_controllers(section: Section) -> None:
    section["programs"]["replicas"] = 1


def monitoring_off(section: Section) -> None:
    section["programs"]["monitoring"] = False


def firmware_set(section: Section) -> None:
    section["leases"]["golden-firmware"]["versions"]["HGX_FW_GPU"] = [
        "96.00.A5.00.01",
        "96.00.B1.00.02",
    ]


CHANGES: Mapping[str, Callable[[Section], None]] = {
    change.__name__.replace("_", "-"): change
    for change in (
        scale_out,
        scale_in,
        tenant_added,
        tenant_removed,
        tenant_moved,
        quota_raised,
        quota_lowered,
        internet_opened,
        relayout,
        by_lease,
        driver_bumped,
        reboot_for_kernel_argument,
        maintenance,
        address_changed,
        image_bumped,
        fewer_controllers,
        monitoring_off,
        firmware_set,
    )
}
SECRETS = {"secret-rotated": ("controller-ssh-private-key", "bmc-password")}
"""Changes of secrets alone: which ones are set anew."""
PROTECTED = "protect-removed"
"""The state protects the partitions of a machine, the program does not any more."""
FIRST = "first-deployment"
"""There is no state yet."""
