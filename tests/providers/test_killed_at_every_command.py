"""The scripts that prepare a machine are killed before every command that changes something, and run again.

What is run is the real script on a simulated machine, through the adapter that sends it. A trap of bash looks
at every command before it runs, in subshells too, and kills the shell before the wanted one; between two of
them only reading commands lie, so that no state in between is left out. After the kill the machine is looked
at as the next `up` would: what it takes for done must be as after an undisturbed run, and what it takes for
undone must get done by running the step again. `make test` kills each step at its first command, at its last
that is certain and in between; `make test-long` at every one.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
from gpuclusters.service_vm.model import ServiceVmInputs
from gpuclusters.vfio.host import inspect
from gpuclusters.vfio.model import VfioFunction
from tests.fixtures.hosts import SimulatedHost
from tests.fixtures.tables import beside
from tests.providers.test_prepared_hosts import boot_inputs
from tests.providers.test_service_vm_on_hosts import wanted as inputs_of
from tests.providers.test_service_vm_on_hosts import without_vm

PRELUDE = Path(__file__).with_name("killed_before.sh").read_text()


class Killing(SshHost):
    """A host whose scripts are killed before the n-th command that changes something; 0: they are not."""

    at = 0
    only = ""
    fired = False

    def run(self, argv: Any, **options: Any) -> Completed:
        meant = list(argv[:2]) == ["sh", "-s"] and self.only.encode() in options.get("stdin", b"")
        if not self.at or not meant:
            return super().run(argv, **options)
        prelude = f"KILL_AT={self.at}\n{PRELUDE}".encode()
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
    service_vm: SshServiceVm
    wanted: WantedVm
    boot: BootCapability

    def done(self, *parts: str) -> bool:
        """Whether the next `up` would leave these parts of the service VM as they are."""
        found = findings(self.wanted, self.service_vm.look(), known=True)
        return not any(one.code in {f"service-vm.{part}" for part in parts} for one in found)

    def install(self, ending: str) -> None:
        """Those of the machine's own files for the VM."""
        files = {p: text for p, text in self.wanted.files.items() if p.endswith(ending)}
        self.service_vm.install(files)

    def vfio(self, verb: str) -> None:
        after = ["vfio/vfio_users"]
        run_script(self.host, "vfio/vfio_bind", (verb, FUNCTION.entry), tried=verb, after=after)

    def driver(self) -> str | None:
        return inspect(self.host, [FUNCTION])[FUNCTION.address].driver

    def prepare_boot(self) -> None:
        with pytest.raises(Refused, match="it is set for the next boot, and reboots are refused"):
            converge(self.boot, Reporter())

    def booting(self) -> set[str]:
        """What the next `up` would find."""
        return {one.code for one in self.boot.findings(self.boot.observe())}


@pytest.fixture(scope="module")
def world(shared_machine: SimulatedHost) -> World:
    machine = without_vm(shared_machine)
    vm = ServiceVmInputs.model_validate(inputs_of(machine), by_name=True)
    connection = HostConnection.model_validate(machine.connection)
    host = Killing(connection, find_credentials(machine.client_key.read_text()))
    boot = HostBootInputs.model_validate(boot_inputs(machine, huge_pages_1g={}, reboot="refuse"))
    wanted_vm = wanted(vm, scripts.texts("service_vm"))
    made = World(machine, host, SshServiceVm(host, vm), wanted_vm, BootCapability(boot, host))
    made.service_vm.install(wanted_vm.files)
    return made


WRITTEN = "/etc/gpu-clusters/written"
OWN_UNIT = "killed-now-and-then.service"
FUNCTION = VfioFunction(address="0000:86:00.0", pci_id="10de:2330", pci_class="0302")
STEPS: dict[str, tuple[Callable[[World], object], Callable[[World], bool]]] = {
    "image": (lambda w: w.service_vm.fetch_image(20), lambda w: w.done("image")),
    "units": (lambda w: w.install(".service"), lambda w: w.done("file", "unit")),
    "seed": (lambda w: w.service_vm.write_seed(w.wanted.seed), lambda w: w.done("seed")),
    "network": (lambda w: w.service_vm.define(w.wanted.network), lambda w: w.done("network")),
    "disk": (lambda w: w.service_vm.make_disk(), lambda w: w.done("disk")),
    "domain": (
        lambda w: w.service_vm.define(w.wanted.domain),
        lambda w: w.done("domain", "autostart"),
    ),
    "file": (
        lambda w: SshNodeFiles(w.host).write(WRITTEN, b"new\n", mode="0640", owner="root:root"),
        lambda w: (
            (live := SshNodeFiles(w.host).read(WRITTEN)) is not None
            and (live.content, live.mode) == (b"new\n", "0640")
        ),
    ),
    "file-goes": (
        lambda w: SshNodeFiles(w.host).remove(WRITTEN),
        lambda w: SshNodeFiles(w.host).read(WRITTEN) is None,
    ),
    "unit": (
        lambda w: SshHostUnits(w.host).apply(OWN_UNIT, enabled=True, active=True, restart=False),
        lambda w: (
            SshHostUnits(w.host).state(OWN_UNIT) == UnitState("enabled", "active", stale=False)
        ),
    ),
    "bound": (lambda w: w.vfio("bind"), lambda w: w.driver() == "vfio-pci"),
    "released": (
        lambda w: w.vfio("release"),
        lambda w: w.driver() != "vfio-pci",
    ),
    "boot": (
        World.prepare_boot,
        lambda w: w.booting() == {"boot.running-arguments"},
    ),
}
"""By name: the act, and what the next `up` believes of it. The rest is in the table beside."""
TOLD = beside(__file__, "killed_steps.yaml")


@pytest.mark.parametrize(
    "every",
    [pytest.param(False, id="some"), pytest.param(True, id="every", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_killed_is_finished_by_the_next_run(
    world: World, name: str, every: bool
) -> None:
    (act, done), told = STEPS[name], TOLD[name]
    least = told["commands"]
    world.machine.sudo(told["undo"])
    assert not done(world)
    act(world)
    assert done(world), "else it would be done for ever"
    undisturbed = world.machine.sudo(told["truth"]).stdout
    some = sorted({1, (1 + least) // 2, least})
    kills = 0
    for number in itertools.count(1) if every else some:
        world.machine.sudo(told["undo"])
        with world.host.killed_at(number, told.get("only", "")):
            act(world)
        if not world.host.fired:
            break
        kills += 1
        if not done(world):
            act(world)
        # Done before the kill, or now; nothing is left that the next `up` would not see.
        assert world.machine.sudo(told["truth"]).stdout == undisturbed, f"killed at {number}"
    assert kills >= (least if every else len(some))
