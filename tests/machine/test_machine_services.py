"""What runs on a real machine reads what was written: CDI, libvirt, systemd's units, sudo, sshd."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from caas.controllers.host_effects import HostEffects
from caas.controllers.host_effects import SshHost as ControllersSsh
from caas.settings import Gpu, Host
from gpuclusters.cdi.resource import CdiSpecProvider
from gpuclusters.core.errors import DeniedError, UnreachableError
from gpuclusters.host.remote import SshNodeFiles
from gpuclusters.host.script import run_script
from gpuclusters.lease import board
from gpuclusters.lease.firmware import Golden
from gpuclusters.lease.model import Phase, RecyclePolicy
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
    named = {"path": SPEC, "kind": "nvidia.com/pgpu", "devices": devices, "module_map": "stated"}
    provider.create(CdiSpecProvider, {"connection": bound.connection} | named)
    spec = json.loads(bound.sudo(f"cat {SPEC}"))
    edits = [spec["containerEdits"], *(one["containerEdits"] for one in spec["devices"])]
    nodes = {node["path"] for edit in edits for node in edit.get("deviceNodes", ())}
    assert len(nodes) == len(GPUS) + 1
    assert bound.sudo(f"stat -c %F {' '.join(nodes)}").splitlines() == [
        "character special file"
    ] * len(nodes)


def test_an_account_that_may_not_become_root_is_said_so(bound: RealMachine) -> None:
    rules = "/etc/sudoers.d/operator"
    narrow = f"mv {rules} /var/backups; echo 'operator ALL=(ALL) /usr/bin/true' >{rules}"
    back = f"until [ -e /tmp/back ]; do sleep 1; done; mv /var/backups/operator {rules}"
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


RULES = {
    "fmpm": {board.ReadBoard, board.ActivatePartition, board.DeactivatePartition},
    "nvidia_gpu_tools[.]py": {board.Reset, board.ClearMemory, board.ReadKnobs},
    "fuser": {board.ReadBoard},
    "readlink": {board.ReadBoard},
    "ls": {board.ReadBoard},
    "mkdir": {board.Withhold, board.ActivatePartition, board.DeactivatePartition, board.ReadBoard},
    "rm": {board.Unfence, board.ActivatePartition, board.Reset},
}
"""By the program that a rule for sudo allows: what the controllers cannot do, or see, without it."""
CONTROLLERS = "gpu-controllers"
ALLOWED = "timeout --kill-after=5 5 ls /var/lib/gpu-clusters/withheld"
REFUSED = Path(__file__).with_name("sudo_refused.txt").read_text().replace("GPU", GPUS[0])


def controllers(machine: RealMachine) -> dict[type, board.Outcome]:
    """What the controllers do on a machine as their own account, by kind of effect."""
    folders = "/run/gpu-clusters-leases /var/lib/gpu-clusters/withheld"
    machine.sudo(f"rm -rf {folders}; mkdir -p {folders}")
    gpus = [Gpu(module=n, pci=pci, device=str(n)) for n, pci in enumerate(GPUS, 1)]
    reached = {key: machine.connection[key] for key in ("address", "port", "host_key")}
    host = Host(
        **reached, name="hgx-real", user=CONTROLLERS, baseboard="hgx-h100", gpus=gpus, partitions=(),
        fabric_manager="127.0.0.1",
    )  # fmt: skip
    golden = Golden(knobs={"ecc": "enabled"})
    policy = RecyclePolicy.FULL
    orders = board.Orders("h", {3: (1, 2)}, (), keep_active=True, policy=policy, golden=golden)
    entry = (1, 1, Phase.ACTIVATING)

    async def all_of_it() -> dict[type, board.Outcome]:
        ssh = ControllersSsh(host, machine.client_key.read_text())
        effects = HostEffects(host, orders, ssh, None)
        done = {
            type(effect): await effects.do(effect)
            for effect in (
                board.DeactivatePartition(3),
                board.ReadBoard(frozenset({entry})),
                board.ActivatePartition(3, frozenset({entry})),
                board.Withhold(entry),
                board.Unfence(frozenset({1, 2})),
                board.Reset(1, 1),
                board.ClearMemory(1, 1),
                board.ReadKnobs(1, 1),
            )
        }
        await effects.close()
        return done

    return asyncio.run(all_of_it())


def test_controllers_need_the_rules_for_sudo_that_the_documents_have_and_no_others(
    bound: RealMachine,
) -> None:
    active = """'{"partitionInfo": [{"partitionId": 3, "isActive": 1}]}'"""
    for name, said in (("fmpm", active), ("nvidia_gpu_tools.py", '"ECC is enabled"')):
        program = f"/usr/local/bin/{name}"
        bound.sudo(f"cat >{program}; chmod 755 {program}", stdin=f"#!/bin/sh\necho {said}\n")
    home = f"/home/{CONTROLLERS}/.ssh"
    bound.sudo(f"useradd --create-home --shell /bin/sh {CONTROLLERS}")
    bound.sudo(f"install -d -o {CONTROLLERS} {home}; cp ~operator/.ssh/authorized_keys {home}")

    page = Path("docs/caas-hosts.md").read_text()
    (path,) = re.findall(rf"/etc/sudoers.d/{CONTROLLERS}", page)
    (defaults,) = re.findall(r"^Defaults:.*$", page, re.MULTILINE)
    rules = re.findall(r"^  (/usr/bin/timeout .*?)(?:, \\)?$", page, re.MULTILINE)

    def allow(some: Sequence[str]) -> None:
        text = f"{defaults}\n{CONTROLLERS} ALL=(root) NOPASSWD: {', '.join(some)}\n"
        bound.sudo(f"cat >{path}; chmod 440 {path}; visudo -c", stdin=text)

    allow(rules)
    whole = controllers(bound)
    assert {kind for kind, outcome in whole.items() if isinstance(outcome, board.Succeeded)} == {
        *whole
    }, whole
    seen = whole[board.ReadBoard].result
    assert seen == board.BoardSeen({3}, {3}, frozenset(), frozenset({1, 2}))

    each = "while read -r words; do sudo -n $words </dev/null >/dev/null 2>&1 && echo $words; done"
    allowed = bound.sudo(f"su {CONTROLLERS} -c '{each}; true'", stdin=f"{ALLOWED}\n{REFUSED}")
    assert allowed == f"{ALLOWED}\n"
    assert bound.run("test -d /etc/gpu-clusters").returncode == 0

    without = {}
    for name in RULES:
        (one,) = (rule for rule in rules if re.search(rf"[ ?]{re.escape(name)}[ (]", rule))
        allow([rule for rule in rules if rule != one])
        done = controllers(bound)
        without[name] = {kind for kind in done if done[kind] != whole[kind]}
    assert without == RULES
    assert len(rules) == len(RULES)
