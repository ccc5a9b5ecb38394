"""The scripts that prepare a machine are killed before every command that changes something, and run again.

What is run is the real script on a simulated machine, through the adapter that sends it. A trap of bash looks
at every command before it runs, in subshells too, and kills the shell before the wanted one; between two of
them only reading commands lie, so that no state in between is left out. After the kill the machine is looked
at as the next `up` would: what it takes for done must be as after an undisturbed run, and what it takes for
undone must get done by running the step again. `make test` kills each step at its first command, at its last
that is certain and in between; `make test-long` at every one.
"""

import itertools
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gpuclusters.boot import model as host_boot
from gpuclusters.boot.host import BootCapability
from gpuclusters.boot.model import HostBootInputs
from gpuclusters.core import scripts
from gpuclusters.core.converge import Reporter, converge
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.finding import Refused
from gpuclusters.host.connect import find_credentials
from gpuclusters.host.model import HostConnection, UnitState
from gpuclusters.host.remote import SshHostUnits, SshNodeFiles
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import Completed, SshHost
from gpuclusters.service_vm.decide import WantedVm, findings, wanted
from gpuclusters.service_vm.host import SshServiceVm
from gpuclusters.service_vm.model import IMAGE_FOLDER, STATE_FOLDER, ServiceVmInputs
from gpuclusters.vfio.host import inspect
from gpuclusters.vfio.model import VfioFunction
from tests.fixtures.hosts import SimulatedHost
from tests.providers.test_prepared_hosts import boot_inputs
from tests.providers.test_service_vm_on_hosts import wanted as inputs_of
from tests.providers.test_service_vm_on_hosts import without_vm

COUNTER = "/tmp/commands"
# What only reads, or only changes the shell itself; written into a file it counts all the same. Functions of
# the scripts are looked at inside.
BUILTIN = (
    "[ |[[ |test |case |: |:|set |trap |local |export |return|exit|echo |printf |read |umask |shift|"
    "command "
)
READING = (
    "sed |head |cut |grep |tr |stat |sha256sum |readlink |cat |dirname |basename |base64 -d|sleep |sync |"
    "virsh dom|virsh net-info|virsh net-uuid|virsh uri|qemu-img info|qemu-img check|"
    "systemctl show|systemctl is-|modprobe |fuser "
)
FUNCTIONS = (
    "name_of |value_of |users_of |nodes_of |is_it|wait_for_driver |complain |word |failed |key |vendor_data|"
    "make_iso |main|verify |remember|bind_one|release_one|inspect_one|state"
)
LEFT_OUT = "|".join(
    f"{shlex.quote(begin)}*" for begin in f"{BUILTIN}|{READING}|{FUNCTIONS}".split("|")
)
PRELUDE = f"""
shopt -s extglob
before_each() {{
    case $BASH_COMMAND in
        *'>"$'* | *'> "$'*) ;;
        {LEFT_OUT}|[a-zA-Z_]*([a-zA-Z0-9_])=*) return 0 ;;
    esac
    printf . >>{COUNTER}
    IFS= read -r counted <{COUNTER} || true
    if [ "${{#counted}}" -ge "$KILL_AT" ]; then
        kill -9 $$ $BASHPID
    fi
}}
set -o functrace
trap before_each DEBUG
"""


class Killing(SshHost):
    """A host whose scripts are killed before the n-th command that changes something; 0: they are not."""

    at = 0
    only = ""
    fired = False

    def run(self, argv: Any, **options: Any) -> Completed:
        meant = list(argv[:2]) == ["sh", "-s"] and self.only.encode() in options.get("stdin", b"")
        if not self.at or not meant:
            return super().run(argv, **options)
        prelude = f"KILL_AT={self.at}\nrm -f {COUNTER}\n{PRELUDE}".encode()
        stdin = prelude + options.pop("stdin")
        done = super().run(["bash", "-s", *argv[2:]], stdin=stdin, **options)
        self.fired = self.fired or done.status in (-1, 137)
        return done

    @contextmanager
    def killed_at(self, number: int, script: str = "") -> Iterator[None]:
        """Kill at that command, only in scripts with these words; the step fails then, as it must."""
        self.at, self.only, self.fired = number, script, False
        try:
            yield
        except AdapterError:
            if not self.fired:
                raise
        finally:
            self.at = 0


@dataclass(frozen=True)
class World:
    """One machine, and what is done on it."""

    machine: SimulatedHost
    host: Killing
    vm: ServiceVmInputs
    service_vm: SshServiceVm

    def done(self, *parts: str) -> bool:
        """Whether the next `up` would leave these parts of the service VM as they are."""
        found = findings(self.wanted, self.service_vm.look(), known=True)
        return not any(one.code in {f"service-vm.{part}" for part in parts} for one in found)

    @property
    def wanted(self) -> WantedVm:
        """The service VM."""
        return wanted(self.vm, scripts.texts("service_vm"))

    def files(self, *endings: str) -> dict[str, str]:
        """Those of the machine's own files for the VM."""
        return {p: text for p, text in self.wanted.files.items() if p.endswith(endings)}


@pytest.fixture(scope="module")
def world(hosts_pool: Any) -> World:
    (machine,) = hosts_pool.add(1, "supermicro-hgx-h100")
    without_vm(machine)
    vm = ServiceVmInputs.model_validate(inputs_of(machine), by_name=True)
    connection = HostConnection.model_validate(machine.connection)
    host = Killing(connection, find_credentials(machine.client_key.read_text()))
    made = World(machine, host, vm, SshServiceVm(host, vm))
    made.service_vm.install(made.wanted.files)
    return made


@dataclass(frozen=True)
class Step:
    """One step: how it is undone, done, and what tells whether it is done."""

    undo: str
    """A shell's line."""
    act: Callable[[World], object]
    done: Callable[[World], bool]
    """What the next `up` believes."""
    truth: str
    """A shell's line whose output is always the same once it is done."""
    commands: int
    """So many commands change something, at least; fewer means that the kills hit nothing."""


NAME = "fabric-manager"
UNIT = "gpu-clusters-service-vm.service"
UNITS_FOLDER = "/etc/systemd/system"
WRITTEN = "/etc/gpu-clusters/written"
OWN_UNIT = "killed-now-and-then.service"
GPU = "0000:86:00.0"
FUNCTION = VfioFunction(address=GPU, pci_id="10de:2330", pci_class="0302")
LOADED = f"systemctl show -p NeedDaemonReload -p UnitFileState {UNIT}; cat {UNITS_FOLDER}/{UNIT} | sha256sum"


def script(world: World, name: str, *arguments: str) -> None:
    after = ["vfio/vfio_users"] if name == "vfio/vfio_bind" else []
    run_script(world.host, name, arguments, tried=name, after=after)


def unit_state(world: World) -> UnitState:
    return SshHostUnits(world.host).state(OWN_UNIT)


STEPS: Mapping[str, Step] = {
    "image": Step(
        f"rm -rf {STATE_FOLDER}/images",
        lambda w: w.service_vm.fetch_image(20),
        lambda w: w.done("image"),
        f"ls {STATE_FOLDER}/images",
        3,
    ),
    "units": Step(
        f"echo '# older' >> {UNITS_FOLDER}/{UNIT}; systemctl daemon-reload",
        lambda w: w.service_vm.install(w.files(UNIT)),
        lambda w: w.done("file", "unit"),
        LOADED,
        5,
    ),
    "seed": Step(
        f"rm -rf {IMAGE_FOLDER}/{NAME}-seed.iso {STATE_FOLDER}/{NAME}*",
        lambda w: w.service_vm.write_seed(w.wanted.seed),
        lambda w: w.done("seed"),
        f"ls -A {STATE_FOLDER}; stat -c '%a %n' {STATE_FOLDER}/* {IMAGE_FOLDER}/{NAME}-seed.iso",
        8,
    ),
    "network": Step(
        f"virsh net-destroy {NAME}; virsh net-undefine {NAME}",
        lambda w: w.service_vm.define(w.wanted.network),
        lambda w: w.done("network"),
        f"virsh net-info {NAME}; virsh net-dumpxml --inactive {NAME}",
        3,
    ),
    "disk": Step(
        f"rm -f {IMAGE_FOLDER}/{NAME}.qcow2*",
        lambda w: w.service_vm.make_disk(),
        lambda w: w.done("disk"),
        f"ls {IMAGE_FOLDER}/*.qcow2*",
        3,
    ),
    "domain": Step(
        f"virsh undefine --nvram {NAME}",
        lambda w: w.service_vm.define(w.wanted.domain),
        lambda w: w.done("domain", "autostart"),
        f"virsh dominfo {NAME}; virsh dumpxml --inactive {NAME}",
        2,
    ),
    "file": Step(
        f"echo older > {WRITTEN}",
        lambda w: SshNodeFiles(w.host).write(WRITTEN, b"new\n", mode="0640", owner="root:root"),
        lambda w: (
            (live := SshNodeFiles(w.host).read(WRITTEN)) is not None
            and (live.content, live.mode) == (b"new\n", "0640")
        ),
        f"cat {WRITTEN}; stat -c %a {WRITTEN}",
        5,
    ),
    "file that goes": Step(
        f"echo there > {WRITTEN}",
        lambda w: SshNodeFiles(w.host).remove(WRITTEN),
        lambda w: SshNodeFiles(w.host).read(WRITTEN) is None,
        f"ls {WRITTEN} 2>&1",
        1,
    ),
    "unit that starts": Step(
        f"systemctl disable --now {OWN_UNIT}; printf '%s\\n' '[Service]' 'Type=oneshot' "
        "'RemainAfterExit=yes' 'ExecStart=/bin/true' '[Install]' 'WantedBy=multi-user.target' "
        f"> {UNITS_FOLDER}/{OWN_UNIT}",
        lambda w: SshHostUnits(w.host).apply(OWN_UNIT, enabled=True, active=True, restart=False),
        lambda w: unit_state(w) == UnitState("enabled", "active", stale=False),
        f"systemctl is-enabled {OWN_UNIT}; systemctl is-active {OWN_UNIT}",
        3,
    ),
    "functions that are bound": Step(
        f"echo > /sys/bus/pci/devices/{GPU}/driver_override; "
        f"echo {GPU} > /sys/bus/pci/devices/{GPU}/driver/unbind",
        lambda w: script(w, "vfio/vfio_bind", "bind", FUNCTION.entry),
        lambda w: inspect(w.host, [FUNCTION])[GPU].driver == "vfio-pci",
        f"basename $(readlink /sys/bus/pci/devices/{GPU}/driver); "
        f"cat /sys/bus/pci/devices/{GPU}/driver_override",
        2,
    ),
    "functions that are given back": Step(
        f"echo vfio-pci > /sys/bus/pci/devices/{GPU}/driver_override; "
        f"echo {GPU} > /sys/bus/pci/drivers_probe",
        lambda w: script(w, "vfio/vfio_bind", "release", FUNCTION.entry),
        lambda w: inspect(w.host, [FUNCTION])[GPU].driver != "vfio-pci",
        f"readlink /sys/bus/pci/devices/{GPU}/driver; cat /sys/bus/pci/devices/{GPU}/driver_override",
        2,
    ),
}


class Walk:
    """Kills one step before one command after another, and runs it again after each."""

    def __init__(self, world: World, step: Step) -> None:
        self._world = world
        self._step = step
        world.machine.sudo(step.undo)
        assert not step.done(world)
        step.act(world)
        assert step.done(world), "else it would be done for ever"
        self._undisturbed = world.machine.sudo(step.truth).stdout

    def kill_at(self, number: int) -> bool:
        """Kill at this command and finish; False when the step ends before it."""
        world, step = self._world, self._step
        world.machine.sudo(step.undo)
        with world.host.killed_at(number):
            step.act(world)
        if not world.host.fired:
            return False
        if not step.done(world):
            step.act(world)
        # Done before the kill, or now; nothing is left that the next `up` would not see.
        found = world.machine.sudo(step.truth).stdout
        assert found == self._undisturbed, f"killed at {number}"
        return True


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_killed_is_finished_by_the_next_run(world: World, name: str) -> None:
    step = STEPS[name]
    walk = Walk(world, step)
    for number in sorted({1, (1 + step.commands) // 2, step.commands}):
        assert walk.kill_at(number)


@pytest.mark.long
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_killed_anywhere_is_finished_by_the_next_run(
    world: World, name: str
) -> None:
    step = STEPS[name]
    walk = Walk(world, step)
    kills = 0
    while walk.kill_at(kills + 1):
        kills += 1
    assert kills >= step.commands


TAKE_EFFECT = "Make what was written take effect at the next boot"


@pytest.mark.parametrize(
    "numbers",
    [pytest.param((1, 3, 5), id="some"), pytest.param(None, id="every", marks=pytest.mark.long)],
)
def test_what_a_machine_boots_with_is_finished_by_the_next_run(
    hosts_pool: Any, numbers: tuple[int, ...] | None
) -> None:
    (machine,) = hosts_pool.add(1, "supermicro-hgx-h100", condition="bare")
    machine.run("sudo -n apt-get install -y psmisc")
    host = Killing(
        HostConnection.model_validate(machine.connection),
        find_credentials(machine.client_key.read_text()),
    )
    inputs = HostBootInputs.model_validate(boot_inputs(machine, huge_pages_1g={}, reboot="refuse"))
    boot = BootCapability(inputs, host)
    undo = (
        f"rm -f {' '.join(inputs.files)} {host_boot.GRUB_FILE} {host_boot.INITRAMFS_STAMP}; "
        "printf 'fs.inotify.max_user_instances = 1\\n' > /tmp/old; sysctl -p /tmp/old; update-grub; "
        "systemctl daemon-reload"
    )
    truth = (
        f"cat {' '.join(inputs.files)} {host_boot.INITRAMFS_STAMP}; grep linux /boot/grub/grub.cfg; "
        "sysctl -n fs.inotify.max_user_instances; systemctl show -p NeedDaemonReload libvirtd.service"
    )

    def act() -> None:
        with pytest.raises(Refused, match="it is set for the next boot, and reboots are refused"):
            converge(boot, Reporter())

    act()
    undisturbed = machine.sudo(truth).stdout
    assert "NeedDaemonReload=no" in undisturbed
    kills = 0
    for number in numbers or itertools.count(1):
        machine.sudo(undo)
        with host.killed_at(number, script=TAKE_EFFECT):
            act()
        if not host.fired:
            break
        kills += 1
        act()
        assert machine.sudo(truth).stdout == undisturbed, f"killed at {number}"
    assert kills >= len(numbers or range(5))
