"""What runs on a real machine reads what was written: CDI, libvirt, systemd's units, sudo, sshd."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpuclusters.cdi.resource import CdiSpecProvider
from gpuclusters.core.errors import AdapterError, DeniedError, UnreachableError
from gpuclusters.host.remote import SshNodeFiles
from gpuclusters.host.script import run_script
from gpuclusters.preflight.host import read_facts
from gpuclusters.vfio.resource import VfioBindingProvider
from lab.machine.qemu import GPUS
from tests.machine.conftest import RealMachine
from tests.machine.inputs import H100, vfio_inputs
from tests.providers.provider_process import ProviderProcess

SPEC = "/etc/cdi/nvidia.com-pgpu.json"


@pytest.fixture(scope="module")
def bound(machine: RealMachine, shared_processes: object) -> RealMachine:
    """A machine whose eight devices are on vfio-pci."""
    provider = shared_processes({"GPU_CLUSTERS_SSH_KEY_FILE": str(machine.client_key)})  # type: ignore[operator]
    provider.create(VfioBindingProvider, vfio_inputs(machine))
    machine.sudo("systemctl enable --now libvirtd")  # as packages do; other files do without it
    return machine


def test_preflight_reads_what_the_kernel_says(bound: RealMachine) -> None:
    facts = read_facts(bound.ssh, GPUS)
    assert facts.root
    assert abs(facts.clock_offset_seconds) < 5
    assert {facts.functions[gpu].driver for gpu in GPUS} == {"vfio-pci"}
    assert {facts.functions[gpu].pci_id for gpu in GPUS} == {H100}
    assert {facts.functions[gpu].header[:4] for gpu in GPUS} == {bytes.fromhex("de103023")}
    assert len({facts.functions[gpu].iommu_group for gpu in GPUS}) == len(GPUS)
    assert set(facts.numa) == {0, 1}
    assert (facts.qemu, facts.libvirt) == ("10.0.13", "11.3.0")
    assert {"fuser", "virsh", "systemctl"} <= facts.commands
    assert "/dev/vfio/vfio" in facts.nodes


def test_a_cdi_specification_names_devices_that_exist(
    bound: RealMachine, provider: ProviderProcess
) -> None:
    devices = [{"name": str(n), "pci_address": gpu} for n, gpu in enumerate(GPUS, 1)]
    provider.create(
        CdiSpecProvider,
        {
            "connection": bound.connection,
            "path": SPEC,
            "kind": "nvidia.com/pgpu",
            "devices": devices,
            "module_map": "stated",
        },
    )
    spec = json.loads(bound.sudo(f"cat {SPEC}"))
    edits = [spec["containerEdits"], *(one["containerEdits"] for one in spec["devices"])]
    nodes = {node["path"] for edit in edits for node in edit.get("deviceNodes", ())}
    assert len(nodes) == len(GPUS) + 1
    assert bound.sudo(f"stat -c %F {' '.join(nodes)}").splitlines() == [
        "character special file"
    ] * len(nodes)


def test_drop_ins_are_read_when_the_runtime_starts_again(bound: RealMachine) -> None:
    files = SshNodeFiles(bound.ssh)
    files.write(
        "/etc/systemd/system/containerd.service.d/50-lab.conf",
        b"[Service]\nEnvironment=LAB=read\n",
        mode="0644",
        owner="root:root",
    )
    bound.sudo("systemctl enable --now containerd")
    before = bound.sudo("systemctl show -P MainPID containerd")
    run_script(bound.ssh, "cdi/reload-runtime", ["containerd.service"], tried="reload")
    assert bound.sudo("systemctl show -P MainPID containerd") != before
    assert "LAB=read" in bound.sudo("systemctl show -P Environment containerd")
    files.write("/etc/containerd/config.toml", b"version = [", mode="0644", owner="root:root")
    with pytest.raises(AdapterError, match="containerd"):
        run_script(bound.ssh, "cdi/reload-runtime", ["containerd.service"], tried="reload")
    bound.sudo("systemctl disable --now containerd")


def test_an_account_that_may_not_become_root_is_said_so(bound: RealMachine) -> None:
    rules = "/etc/sudoers.d/operator"
    narrow = f"mv {rules} /root; echo 'operator ALL=(ALL) /usr/bin/true' >{rules}"
    back = f"until [ -e /tmp/back ]; do sleep 1; done; mv /root/operator {rules}"
    bound.sudo(f'systemd-run --quiet sh -c "{narrow}; {back}"')
    while bound.run("sudo -n id").returncode == 0:
        time.sleep(1)
    with pytest.raises(DeniedError, match="NOPASSWD"):
        run_script(bound.ssh, "host/unit", ["state", "ssh.service"], tried="look")
    facts = read_facts(bound.ssh, GPUS[:1])
    assert not facts.root
    bound.run("touch /tmp/back")
    while bound.run("sudo -n id").returncode:
        time.sleep(1)


def test_more_commands_at_once_than_sshd_has_sessions(bound: RealMachine) -> None:
    """Debian's MaxSessions is 10 for each connection."""
    with ThreadPoolExecutor(24) as many:
        said = [*many.map(lambda n: bound.run(f"sleep 1; echo {n}").stdout.strip(), range(24))]
    assert said == [str(n) for n in range(24)]


def test_a_connection_that_is_cut_in_the_middle_leaves_the_old_file_or_the_new(
    bound: RealMachine,
) -> None:
    path, files = "/etc/gpu-clusters/large", SshNodeFiles(bound.ssh)
    for letter in (b"a", b"b"):
        files.write(path, letter * 400_000, mode="0640", owner="root:root")
    # The script calls it between writing its temporary file and renaming it.
    cut = '#!/bin/sh\nrm "$0"\npkill -9 -u operator sshd\nexec /usr/bin/sync "$@"\n'
    bound.sudo(f"printf '{cut}' >/usr/local/bin/sync; chmod +x /usr/local/bin/sync")
    with pytest.raises(UnreachableError, match="the connection broke off"):
        files.write(path, b"c" * 400_000, mode="0640", owner="root:root")
    live = files.read(path)
    assert live is not None
    assert live.content in (b"b" * 400_000, b"c" * 400_000)
    files.write(path, b"d" * 400_000, mode="0640", owner="root:root")
    assert bound.sudo(f"stat -c '%a %U %s' {path}").split() == ["640", "root", "400000"]
