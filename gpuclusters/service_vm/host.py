"""The service VM of one host: the steps that bring it to what is wanted, each of which may be interrupted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuclusters.core.converge import Clock, Reporter, Step
from gpuclusters.core.finding import Finding, Refused, refused
from gpuclusters.domain.ports import PciDevices
from gpuclusters.fabric.answers import FabricError
from gpuclusters.fabric.model import FabricManager
from gpuclusters.service_vm import decide, domain_xml, health
from gpuclusters.service_vm.decide import LiveVm, is_ours
from gpuclusters.service_vm.health import Guest, Health
from gpuclusters.service_vm.model import ServiceVmInputs
from gpuclusters.service_vm.remote import SshServiceVm

# One command on a host may take a minute; a download goes on in the next one.
DOWNLOAD_SECONDS = 40
SHUTDOWN_SECONDS = 30


class ServiceVmCapability:
    """The VM of one host; `known` says that this resource made it before."""

    def __init__(
        self,
        vm: ServiceVmInputs,
        host: SshServiceVm,
        fabric: FabricManager,
        pci: PciDevices,
        clock: Clock,
        reporter: Reporter,
        scripts: Mapping[str, str],
        *,
        known: bool,
    ) -> None:
        self._vm, self._host, self._fabric, self._pci = vm, host, fabric, pci
        self._clock, self._reporter, self._known = clock, reporter, known
        self._want = want = decide.wanted(vm, scripts)
        self.target = f"{host.target}: service VM {vm.name}"
        self.steps = {
            decide.IMAGE: Step(self._fetch, look=False),
            decide.FILES: Step(self._install, look=False),
            decide.SEED: Step(lambda _live, _found: host.write_seed(want.seed), look=False),
            decide.STOP: Step(self._stop, look=False),
            decide.NETWORK: Step(
                lambda _live, _found: host.define_network(domain_xml.text(want.network)), look=False
            ),
            decide.DISK: Step(lambda _live, _found: host.make_disk(), look=False),
            decide.DOMAIN: Step(
                lambda _live, _found: host.define_domain(domain_xml.text(want.domain)), look=False
            ),
            decide.START: Step(lambda _live, _found: host.start()),
        }

    def observe(self) -> LiveVm:
        """What is there, and who holds GPUs if the VM would have to restart."""
        live = self._host.look()
        if live.problem is not None:
            raise refused(
                self.target,
                "service-vm.libvirt",
                f"libvirt cannot be asked ({live.problem})",
                "start it (`systemctl start libvirtd`), and see that the packages of libvirt and QEMU are "
                "installed",
            )
        found = decide.findings(self._want, live, known=True)
        if any(one.code in decide.LOSES_LINKS for one in found):
            live = replace(live, holders=self._holders())
        return live

    def findings(self, live: LiveVm) -> Iterable[Finding]:
        """See `decide.findings`; once the fabric manager was asked, what it says too."""
        yield from decide.findings(self._want, live, known=self._known)
        yield from decide.serving(self._vm, live)

    def differences(self, live: LiveVm) -> Iterable[Finding]:
        """How a domain that is there is not what is declared."""
        return decide.taken_over(self.findings(live)) if live.domain is not None else ()

    def asked(self, live: LiveVm) -> LiveVm:
        """The same, with what the fabric manager and the VM say now."""
        if not live.running:
            return replace(live, health=Health.STOPPED if live.domain is not None else None)
        found, words = health.ask(self._fabric)
        return replace(live, health=found, words=words, guest=self._host.ask_guest())

    def serve(self) -> LiveVm:
        """Wait until the fabric manager serves, and see that it is the one that is wanted.

        Raises:
            Refused: it does not, with the reason that can be seen from here.
        """
        found = self._wait()
        live = replace(self.observe(), health=found, guest=self._host.ask_guest())
        wrong = [*decide.serving(self._vm, live)]
        if wrong:
            raise Refused(self.target, wrong)
        if not live.guest.answered:
            self._reporter.note(
                f"{self.target}: does not let its host in over SSH ({live.guest.problem}); the version of "
                "the fabric manager is what its console says"
            )
        return live

    def remove(self) -> None:
        """Shut the VM down and remove it with its disk, seed, keys, network and units; absent is fine."""
        live = self.observe()
        if live.domain is not None and not is_ours(live):
            raise refused(
                self.target,
                "service-vm.foreign",
                "the domain was replaced by one that is not ours, so it is not removed",
                "remove it by hand if nothing needs it, then destroy again",
            )
        holders = self._holders()
        if holders:
            raise refused(
                self.target,
                "service-vm.in-use",
                f"cannot be removed while GPUs are in use: {holders}",
                "end the leases (or stop the VMs) that hold them, then destroy again",
            )
        active = self._active() if live.running else ()
        if active:
            raise refused(
                self.target,
                "service-vm.partitions-active",
                f"cannot be removed while partitions are active: {', '.join(map(str, active))}; nobody could "
                "deactivate them any more",
                "destroy leases and partitions first, or deactivate each with `fmpm -d ID`",
            )
        self._end(live)
        network = domain_xml.parse(live.network or "")
        bridge = None if network is None else network.find("bridge")
        ours = bridge is not None and bridge.get("name") == self._vm.network.bridge
        self._host.remove(network=ours)

    def _wait(self) -> Health:
        vm, begin, pause = self._vm, self._clock.now(), health.FIRST_PAUSE_SECONDS
        while True:
            found, words = health.ask(self._fabric)
            passed = self._clock.now() - begin
            settled = vm.fabric_manager.restart and passed >= health.SETTLE_SECONDS
            if found is Health.READY or (found is Health.WAITING and settled):
                return found
            if found in {Health.WRONG_MODE, Health.VERSION_MISMATCH, Health.FAILED}:
                raise self._unhealthy(found, words)
            state = self._host.state()
            if state != "running":
                raise self._unhealthy(Health.STOPPED, f"it is {state}")
            console = self._host.look().console if found is Health.UNREACHABLE else ""
            if passed >= vm.boot_timeout_seconds or health.said(console).wanted:
                raise self._unhealthy(found, words)
            self._clock.sleep(min(pause, max(vm.boot_timeout_seconds - passed, 0.1)))
            pause = min(pause * 2, health.LONGEST_PAUSE_SECONDS)

    def _unhealthy(self, found: Health, words: str) -> Refused:
        stopped = found is Health.STOPPED
        guest = Guest("it does not run") if stopped else self._host.ask_guest()
        console = self._host.look().console
        return Refused(self.target, [health.unhealthy(self._vm, found, words, console, guest)])

    def _holders(self) -> str:
        """Who holds GPUs of the board, in words; empty if nobody does."""
        gpus = self._vm.gpus
        found = self._pci.inspect(list(gpus.values())) if gpus else {}
        return ", ".join(
            f"GPU {module} ({address}) by process {', '.join(map(str, found[address].users))}"
            for module, address in sorted(gpus.items())
            if found[address].users
        )

    def _active(self) -> tuple[int, ...]:
        """Active partitions; none where the fabric manager does not serve and so has none to lose."""
        try:
            table = self._fabric.partitions()
        except FabricError:
            return ()
        return tuple(sorted(p.id for p in table.values() if p.active))

    def _fetch(self, _live: LiveVm, _found: Sequence[Finding]) -> None:
        deadline = self._clock.now() + self._vm.download_timeout_seconds
        before = ""
        while (so_far := self._host.fetch_image(DOWNLOAD_SECONDS)) is not None:
            if self._clock.now() >= deadline or so_far == before:
                raise refused(
                    self.target,
                    "service-vm.download",
                    f"the image {self._vm.image.url} is not there yet: {so_far}",
                    "check the host's way to it; the download goes on where it ended when this is run again",
                )
            before = so_far

    def _install(self, _live: LiveVm, found: Sequence[Finding]) -> None:
        paths = {one.path[0] for one in found if one.path}
        files = {path: text for path, text in self._want.files.items() if path in paths}
        self._host.install(files, self._want.executable)

    def _stop(self, live: LiveVm, _found: Sequence[Finding]) -> None:
        # Asked again: a guest may have started since.
        live = replace(live, holders=self._holders())
        blocked = [one for one in self.findings(live) if one.code == "service-vm.in-use"]
        if blocked:
            raise Refused(self.target, blocked)
        self._end(live)

    def _end(self, live: LiveVm) -> None:
        """Shut the VM down, and take its power if it does not obey in time."""
        if not live.running:
            return
        left = self._vm.shutdown_timeout_seconds
        while left > 0:
            patience = min(SHUTDOWN_SECONDS, left)
            if self._host.shut_down(patience):
                return
            left -= patience
        seconds = self._vm.shutdown_timeout_seconds
        self._reporter.note(f"{self.target} did not shut down within {seconds} s; switched off")
        self._host.power_off()
