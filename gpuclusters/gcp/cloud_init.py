"""What cloud-init on a machine of Google Cloud is told: its host key, its account, two units of ours.

The host key makes it secret. Any process of the machine could ask the metadata server for it; the first unit
keeps everybody but root from asking. Source: cloud-init's module reference (ssh, write_files, runcmd).
"""

from collections.abc import Mapping, Sequence

import yaml

from gpuclusters.core import scripts

GUARD_UNIT = "gpu-clusters-metadata-guard.service"
FIRST_BOOT_UNIT = "gpu-clusters-first-boot.service"
PLACES: Mapping[str, tuple[str, str]] = {
    "gpu-clusters-metadata-guard.nft": ("/etc/gpu-clusters/metadata-guard.nft", "0644"),
    GUARD_UNIT: (f"/etc/systemd/system/{GUARD_UNIT}", "0644"),
    "first-boot.sh": ("/usr/local/sbin/gpu-clusters-first-boot", "0755"),
    FIRST_BOOT_UNIT: (f"/etc/systemd/system/{FIRST_BOOT_UNIT}", "0644"),
}
"""Where files of `gpuclusters/gcp/scripts` go on a machine, and their mode."""
FIRST_BOOT_SETTINGS = "/etc/gpu-clusters/first-boot.env"
# Google's guest agent makes host keys of its own when it sees a machine for the first time.
AGENT_SETTINGS = "/etc/default/instance_configs.cfg"
AGENT_KEEPS_HOST_KEYS = "[InstanceSetup]\nset_host_keys = false\n"


def user_data(
    user: str, authorized_keys: Sequence[str], *, private_key: str, public_key: str
) -> str:
    """The machine's user-data. Secret."""
    ours = {path: (scripts.read(f"gcp/{name}"), mode) for name, (path, mode) in PLACES.items()}
    files = {
        AGENT_SETTINGS: (AGENT_KEEPS_HOST_KEYS, "0644"),
        FIRST_BOOT_SETTINGS: (f"GPU_CLUSTERS_USER={user}\n", "0644"),
        **ours,
    }
    words = {
        "private_key": private_key,
        "public_key": public_key,
        "user": user,
        "authorized_keys": list(authorized_keys),
        "files": [
            {"path": path, "owner": "root:root", "permissions": mode, "content": text}
            for path, (text, mode) in files.items()
        ],
        "guard": GUARD_UNIT,
        "first_boot": FIRST_BOOT_UNIT,
    }
    document = scripts.manifest("gcp/user-data.yaml", words)
    return "#cloud-config\n" + yaml.safe_dump(document, sort_keys=False, width=1000)
