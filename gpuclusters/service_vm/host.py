"""The service VM of one host, over `virsh` and `qemu-img`: steps, each of which may be interrupted."""

import io
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from gpuclusters.core import codes, scripts
from gpuclusters.core.converge import Step
from gpuclusters.core.errors import CommandFailedError
from gpuclusters.core.finding import Finding, Refused, refused
from gpuclusters.fabric.answers import NOT_CONFIGURED, FabricError
from gpuclusters.fabric.manager import SshFabricManager
from gpuclusters.host.capability import HostCapability, Reach
from gpuclusters.host.remote import SshPciDevices
from gpuclusters.host.script import command_error, last_lines, read_facts, run_script
from gpuclusters.host.ssh import Completed, SshHost
from gpuclusters.service_vm import decide, domain_xml
from gpuclusters.service_vm.cloud_init import Seed
from gpuclusters.service_vm.decide import (
    COMMAND,
    UNITS,
    Guest,
    Health,
    LiveVm,
    WantedVm,
    is_ours,
    parsed_guest,
    wanted,
)
from gpuclusters.service_vm.model import ACCOUNT, STATE_FOLDER, ServiceVmInputs

# One command on a host may take a minute; a download goes on in the next one.
DOWNLOAD_SECONDS = 40
SHUTDOWN_SECONDS = 30
_UNFINISHED, _OTHER_CHECKSUM, _NO_FILE, _NO_CURL, _DOWNLOAD_FAILED = 10, 11, 12, 13, 14
_CHECKSUM_REMEDY = (
    "use the image that was meant, or write its checksum as image.sha256 after you have checked where it "
    "comes from"
)
_STILL_RUNNING = 10
_NO_ISO_TOOL = 20
_NO_KEYS, _NOT_LET_IN = 20, 21
_GUEST_SECONDS = 5
# A checksum of a few GiB, a disk's first write, libvirt's start of a VM whose memory is pinned.
_SLOW_SECONDS = 300


class SshServiceVm:
    """One host and its service VM. Every verb may be repeated: what is done already is fine."""

    def __init__(self, host: SshHost, vm: ServiceVmInputs) -> None:
        self._host = host
        self._vm = vm
        self.target = host.target
        self._files = " ".join(wanted(vm, scripts.texts("service_vm")).files)

    def look(self) -> LiveVm:
        vm, tried = self._vm, f"look at the service VM {self._vm.name}"
        made_of = (vm.name, vm.network.name, vm.disk, vm.seed, vm.image.file, vm.image.sha256)
        own = (STATE_FOLDER, vm.console, self._files, " ".join(UNITS))
        done = self._run("inspect", tried, *made_of, *own, repeatable=True)
        return read_facts(LiveVm, self._host, done.text, tried=tried)

    def state(self) -> str | None:
        """As `virsh domstate` says."""
        argv = ["virsh", "--connect", "qemu:///system", "domstate", self._vm.name]
        done = self._host.run(argv, tried="ask for the VM's state", repeatable=True)
        words = done.text.partition("\n")[0].strip()
        return words if done.status == 0 else None

    def ask_guest(self) -> Guest:
        """What the VM says of itself; that it cannot be asked is an answer too."""
        vm = self._vm
        whom = (vm.name, str(vm.fabric_manager.bind_address), STATE_FOLDER, ACCOUNT)
        tried, accept = f"ask the service VM {vm.name} over SSH", (0, _NO_KEYS, _NOT_LET_IN)
        what = (*whom, str(_GUEST_SECONDS), COMMAND)
        done = self._run("guest", tried, *what, repeatable=True, accept=accept)
        if done.status != 0:
            return Guest(last_lines(done.stderr) or "ssh ended without a word")
        return parsed_guest(done.text)

    def fetch_image(self, seconds: int) -> str | None:
        """Get and verify the image for so long."""
        image = self._vm.image
        tried = f"get the image {image.path or image.url}"
        what = (image.file, image.url or "-", image.sha256, STATE_FOLDER, str(seconds))
        accept = (0, _UNFINISHED, _OTHER_CHECKSUM, _NO_FILE, _NO_CURL, _DOWNLOAD_FAILED)
        done = self._run("fetch_image", tried, *what, accept=accept)
        words = done.text.strip()
        if done.status == 0:
            return None
        if done.status == _UNFINISHED:
            return f"{words} bytes so far"
        problem, remedy = {
            _OTHER_CHECKSUM: (f"its sha256 is {words}, not {image.sha256}", _CHECKSUM_REMEDY),
            _NO_FILE: (f"there is no file {image.path}", "copy it there, or write a url instead"),
            _NO_CURL: ("curl is not installed", "install the package curl on the host"),
            _DOWNLOAD_FAILED: (last_lines(done.stderr), codes.remedy("service-vm.download")),
        }[done.status]
        if "No space left" in problem or "Failed writing body" in problem:
            raise command_error(self._host, tried, done)
        raise CommandFailedError(self.target, tried, problem, remedy)

    def install(self, files: Mapping[str, str]) -> None:
        """Write the host's own files, and let systemd start the VM at boot."""
        tar = _tar(files, {path: 0o755 if path == decide.PROGRAM else 0o644 for path in files})
        self._run("install", "install the units of the service VM", *UNITS, content=tar)

    def write_seed(self, seed: Seed) -> None:
        vm = self._vm
        tried = f"make the seed {vm.seed}"
        what, accept = (vm.name, vm.seed, seed.digest, STATE_FOLDER, ACCOUNT), (0, _NO_ISO_TOOL)
        done = self._run("seed", tried, *what, content=_tar(seed.files), accept=accept)
        if done.status == _NO_ISO_TOOL:
            problem = "neither genisoimage, mkisofs nor xorriso is installed"
            remedy = "install the package genisoimage (or xorriso) on the host"
            raise CommandFailedError(self.target, tried, problem, remedy)

    def define(self, root: ET.Element) -> None:
        """Define the domain, or the network anew and start it."""
        name, xml = root.findtext("name", ""), domain_xml.text(root)
        self._run("define", f"define the {root.tag} {name}", root.tag, name, content=xml.encode())

    def make_disk(self) -> None:
        vm = self._vm
        self._run("disk", f"make the disk {vm.disk}", vm.disk, vm.image.file, str(vm.disk_gib))

    def power(self, word: Literal["start", "off"]) -> None:
        """Start the VM, or take its power."""
        verb = "switch off" if word == "off" else word
        self._run("power", f"{verb} the service VM {self._vm.name}", word, self._vm.name)

    def shut_down(self, seconds: int) -> bool:
        """Ask the VM to shut down and wait; whether it did."""
        words = ("shutdown", self._vm.name, str(seconds))
        tried = f"shut down the service VM {self._vm.name}"
        done = self._run("power", tried, *words, accept=(0, _STILL_RUNNING))
        return done.status == 0

    def remove(self, *, network: bool) -> None:
        vm, name = self._vm, self._vm.network.name if network else "-"
        own = (STATE_FOLDER, vm.console, self._files, " ".join(UNITS))
        tried, parts = f"remove the service VM {vm.name}", (vm.name, name, vm.disk, vm.seed)
        self._run("remove", tried, *parts, *own)

    def _run(self, script: str, tried: str, *arguments: str, **how: Any) -> Completed:
        how |= {"tried": tried, "timeout_seconds": _SLOW_SECONDS, "area": "service-vm"}
        return run_script(self._host, f"service_vm/{script}", arguments, **how)


def _tar(files: Mapping[str, str], modes: Mapping[str, int] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size = len(text.encode())
            entry.mode = (modes or {}).get(name, 0o600)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


class ServiceVmCapability(HostCapability[ServiceVmInputs, LiveVm]):
    """The VM of one host, its fabric manager, and the GPUs that its switches connect."""

    vm: SshServiceVm
    fabric: SshFabricManager
    pci: SshPciDevices

    @classmethod
    def on(cls, inputs: ServiceVmInputs, reach: Reach, before: Mapping[str, Any]) -> Self:
        made = super().on(inputs, reach, before)
        made.vm, made.pci = (
            SshServiceVm(made._host, inputs),
            SshPciDevices(made._host, with_users=True),
        )
        address = str(inputs.fabric_manager.bind_address)
        made.fabric = SshFabricManager(made._host, inputs.name, address)
        return made

    @cached_property
    def _want(self) -> WantedVm:
        return decide.wanted(self._inputs, scripts.texts("service_vm"))

    @property
    def target(self) -> str:
        return f"{super().target}: service VM {self._inputs.name}"

    @property
    def steps(self) -> Mapping[str, Step[LiveVm]]:
        vm, want = self.vm, self._want
        return {
            decide.IMAGE: Step(self._fetch, look=False),
            decide.FILES: Step(self._install, look=False),
            decide.SEED: Step(lambda *_: vm.write_seed(want.seed), look=False),
            decide.STOP: Step(self._stop, look=False),
            decide.NETWORK: Step(lambda *_: vm.define(want.network), look=False),
            decide.DISK: Step(lambda *_: vm.make_disk(), look=False),
            decide.DOMAIN: Step(lambda *_: vm.define(want.domain), look=False),
            decide.START: Step(lambda *_: vm.power("start")),
        }

    def seen(self) -> LiveVm:
        return self.asked(self.observe())

    def outputs(self, live: LiveVm) -> Mapping[str, str]:
        wanted = self._inputs.fabric_manager
        version = live.guest.version or decide.said(live.console).version
        return {
            "address": str(wanted.bind_address),
            "state": live.health.value if live.health else "",
            # What the VM says of itself over SSH, else on its console; that may have been rotated away.
            "fabric_manager_version": version or wanted.version,
            "run": live.run,
            "ssh_host_key": live.host_key,
        }

    def is_absent(self, live: LiveVm) -> bool:
        return live.domain is None

    def observe(self) -> LiveVm:
        """What is there, and who holds GPUs if the VM would have to restart."""
        live = self.vm.look()
        if live.problem is not None:
            raise refused(self.target, "service-vm.libvirt", words=last_lines(live.problem))
        found = decide.findings(self._want, live, known=True)
        if any(one.code in decide.LOSES_LINKS for one in found):
            return live.model_copy(update={"holders": self._holders()})
        return live

    def findings(self, live: LiveVm) -> Iterable[Finding]:
        """See `decide.findings`; once the fabric manager was asked, what it says too."""
        yield from decide.findings(self._want, live, known=bool(self._before))
        yield from decide.serving(self._inputs, live)

    def differences(self, live: LiveVm) -> Iterable[Finding]:
        return decide.taken_over(self.findings(live)) if live.domain is not None else ()

    def asked(self, live: LiveVm) -> LiveVm:
        """The same, with what the fabric manager and the VM say now."""
        if not live.running:
            gone = Health.STOPPED if live.domain is not None else None
            return live.model_copy(update={"health": gone})
        found, words = self._ask()
        said = {"health": found, "words": words, "guest": self.vm.ask_guest()}
        return live.model_copy(update=said)

    def prove(self, live: LiveVm) -> LiveVm:
        """Wait until the fabric manager serves, and see that it is the one that is wanted."""
        found = self._wait()
        self._tell_that_nothing_is_active(live)
        said = {"health": found, "guest": self.vm.ask_guest()}
        live = self.observe().model_copy(update=said)
        wrong = [*decide.serving(self._inputs, live)]
        if wrong:
            raise Refused(self.target, wrong)
        if not live.guest.answered:
            why = f"does not let its host in over SSH ({live.guest.problem})"
            known = "the version of the fabric manager is what its console says"
            self._reporter.note(f"{self.target}: {why}; {known}")
        return live

    def _tell_that_nothing_is_active(self, live: LiveVm) -> None:
        """A fabric manager that has just started takes no change before it has its list.

        Where no layout is declared, only leases change anything, and they send none.
        """
        started = live.run != self._before.get("run")
        if started and self._inputs.gpus and not self._active() and not self._holders():
            try:
                self.fabric.set_activated(())
            except FabricError as error:
                # It initialises still; what asks for partitions next waits for it.
                if error.code != NOT_CONFIGURED:
                    raise

    def remove(self) -> None:
        """Shut the VM down and remove it with its disk, seed, keys, network and units; absent is fine."""
        live = self.observe()
        if live.domain is not None and not is_ours(live):
            raise refused(self.target, "service-vm.foreign", case="removal")
        if holders := self._holders():
            raise refused(self.target, "service-vm.in-use", case="removal", holders=holders)
        active = self._active() if live.running else ()
        if active:
            raise refused(self.target, "service-vm.partitions-active", active=active)
        self._end(live)
        network = domain_xml.parse(live.network or "")
        ours = f"bridge[@name='{self._inputs.network.bridge}']"
        self.vm.remove(network=network is not None and network.find(ours) is not None)

    def _wait(self) -> Health:
        vm, begin, pause = self._inputs, self._clock.now(), decide.FIRST_PAUSE_SECONDS
        while True:
            found, words = self._ask()
            passed = self._clock.now() - begin
            settled = vm.fabric_manager.restart and passed >= decide.SETTLE_SECONDS
            if found is Health.READY or (found is Health.WAITING and settled):
                return found
            if found in {Health.WRONG_MODE, Health.VERSION_MISMATCH, Health.FAILED}:
                raise self._unhealthy(found, words)
            state = self.vm.state()
            if state != "running":
                raise self._unhealthy(Health.STOPPED, f"it is {state}")
            console = self.vm.look().console if found is Health.UNREACHABLE else ""
            if passed >= vm.boot_timeout_seconds or decide.said(console).wanted:
                raise self._unhealthy(found, words)
            self._clock.sleep(min(pause, max(vm.boot_timeout_seconds - passed, 0.1)))
            pause = min(pause * 2, decide.LONGEST_PAUSE_SECONDS)

    def _ask(self) -> tuple[Health, str]:
        """One question: the health, and the fabric manager's words."""
        try:
            table = self.fabric.partitions()
        except FabricError as error:
            return decide.health_of(error)
        return (Health.READY, "") if table else (Health.FAILED, "it lists no partition")

    def _unhealthy(self, found: Health, words: str) -> Refused:
        stopped = found is Health.STOPPED
        guest = Guest("it does not run") if stopped else self.vm.ask_guest()
        console = self.vm.look().console
        return Refused(self.target, [decide.unhealthy(self._inputs, found, words, console, guest)])

    def _holders(self) -> str:
        """Who holds GPUs of the board, in words; empty if nobody does."""
        gpus = self._inputs.gpus
        found = self.pci.inspect(list(gpus.values())) if gpus else {}
        return ", ".join(
            f"GPU {module} ({address}) by process {', '.join(map(str, found[address].users))}"
            for module, address in sorted(gpus.items())
            if found[address].users
        )

    def _active(self) -> tuple[int, ...]:
        """Active partitions; none where the fabric manager does not serve and so has none to lose."""
        try:
            table = self.fabric.partitions()
        except FabricError:
            return ()
        return tuple(sorted(p.id for p in table.values() if p.active))

    def _fetch(self, _live: LiveVm, _found: Sequence[Finding]) -> None:
        deadline = self._clock.now() + self._inputs.download_timeout_seconds
        before = ""
        while (so_far := self.vm.fetch_image(DOWNLOAD_SECONDS)) is not None:
            if self._clock.now() >= deadline or so_far == before:
                raise refused(self.target, "service-vm.download", vm=self._inputs, so_far=so_far)
            before = so_far

    def _install(self, _live: LiveVm, found: Sequence[Finding]) -> None:
        paths = {one.path[0] for one in found if one.path}
        files = {path: text for path, text in self._want.files.items() if path in paths}
        self.vm.install(files)

    def _stop(self, live: LiveVm, _found: Sequence[Finding]) -> None:
        # Asked again: a guest may have started since.
        live = live.model_copy(update={"holders": self._holders()})
        blocked = [one for one in self.findings(live) if one.code == "service-vm.in-use"]
        if blocked:
            raise Refused(self.target, blocked)
        self._end(live)

    def _end(self, live: LiveVm) -> None:
        """Shut the VM down, and take its power if it does not obey in time."""
        if not live.running:
            return
        left = self._inputs.shutdown_timeout_seconds
        while left > 0:
            patience = min(SHUTDOWN_SECONDS, left)
            if self.vm.shut_down(patience):
                return
            left -= patience
        seconds = self._inputs.shutdown_timeout_seconds
        self._reporter.note(f"{self.target} did not shut down within {seconds} s; switched off")
        self.vm.power("off")
