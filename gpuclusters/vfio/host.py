"""Functions that belong to vfio-pci on a host, over SSH, by the script that its unit runs at boot too."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.core import scripts
from gpuclusters.core.converge import Step
from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.core.finding import Finding, Refused
from gpuclusters.host.capability import HostCapability
from gpuclusters.host.remote import SshHostUnits
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost
from gpuclusters.vfio import decide
from gpuclusters.vfio.decide import UNIT, LiveBinding, WantedFile
from gpuclusters.vfio.model import FoundFunction, VfioBindingInputs, VfioFunction

USERS = "vfio/vfio_users"
"""The script that finds out who holds a device; others come after it."""
_BIND = "vfio/vfio_bind"
_RELEASE_SECONDS = 300.0
_FIELDS = 9


class VfioCapability(HostCapability[VfioBindingInputs, LiveBinding]):
    """The functions of one host; those that were bound before and are not named any more are given back."""

    @property
    def steps(self) -> Mapping[str, Step[LiveBinding]]:
        """The unit binds; functions that went are released first."""
        return {
            "files": Step(self._write, look=False),
            "release": Step(lambda _live, _found: self._release(self._gone), look=False),
            "bind": Step(
                lambda _live, _found: self._units.apply(
                    UNIT, enabled=True, active=True, restart=True
                )
            ),
        }

    @property
    def _gone(self) -> list[VfioFunction]:
        before = map(VfioFunction.model_validate, self._before.get("functions", ()))
        return [old for old in before if old.address not in self._inputs.addresses]

    @property
    def _units(self) -> SshHostUnits:
        return SshHostUnits(self._host)

    @property
    def _wanted(self) -> tuple[WantedFile, ...]:
        script = "".join(scripts.read(f"{name}.sh") for name in (USERS, _BIND))
        return decide.wanted_files(self._inputs, script, scripts.read(f"vfio/{UNIT}"))

    def observe(self) -> LiveBinding:
        return LiveBinding(
            inspect(self._host, [*self._inputs.functions, *self._gone]),
            {file.path: self._files.read(file.path) for file in self._wanted},
            self._units.state(UNIT),
        )

    def findings(self, live: LiveBinding) -> Iterable[Finding]:
        return decide.findings(self._inputs, self._gone, self._wanted, live)

    def differences(self, live: LiveBinding) -> Iterable[Finding]:
        return decide.differences([*self.findings(live)], self._wanted, live)

    def outputs(self, live: LiveBinding) -> Mapping[str, Any]:
        found = ((a, live.functions[a].iommu_group) for a in self._inputs.addresses)
        return {"iommu_groups": {address: group for address, group in found if group is not None}}

    def is_absent(self, live: LiveBinding) -> bool:
        return not any(live.files.values())

    def remove(self) -> None:
        """Give all functions back and take our files away, unless a virtual machine has one of them."""
        live = self.observe()
        bound = [f for f in self._inputs.functions if decide.is_it(f, live.functions[f.address])]
        used = [f for f in bound if live.functions[f.address].driver == decide.DRIVER]
        used = [f for f in used if live.functions[f.address].users]
        if used:
            found = live.functions
            raise Refused(self.target, [decide.in_use(f, found[f.address]) for f in used])
        self._units.remove(UNIT)
        ours = {p for p, file in live.files.items() if file and decide.OURS in file.content}
        for path in ours - {decide.SCRIPT_PATH}:
            self._files.remove(path)
        self._release(bound)
        if decide.SCRIPT_PATH in ours:  # last: it is what gives back
            self._files.remove(decide.SCRIPT_PATH)

    def _write(self, _live: LiveBinding, found: Sequence[Finding]) -> None:
        paths = {finding.path[0] for finding in found}
        for file in self._wanted:
            if file.path in paths:
                content = file.content.encode()
                self._files.write(file.path, content, mode=file.mode, owner="root:root")

    def _release(self, functions: Sequence[VfioFunction]) -> None:
        if functions:
            tried = f"give back {', '.join(f.address for f in functions)}"
            entries = [f.entry for f in functions]
            self._run(tried, _BIND, "release", *entries, after=[USERS], seconds=_RELEASE_SECONDS)


def inspect(host: SshHost, functions: Sequence[VfioFunction]) -> Mapping[str, FoundFunction]:
    """What the kernel says now about each address, in one round trip."""
    tried = f"look at the PCI functions {', '.join(f.address for f in functions)}"
    entries = [f.entry for f in functions]
    words = ["inspect", *entries]
    done = run_script(host, _BIND, words, tried=tried, after=[USERS], repeatable=True)
    lines = [line.split(" ") for line in done.text.splitlines()]
    found = {words[0]: _found(words) for words in lines if len(words) == _FIELDS}
    if set(found) != {f.address for f in functions}:
        problem = "not every function was answered for"
        raise InvalidAnswerError(host.target, tried, problem, "run again")
    return found


def _found(words: Sequence[str]) -> FoundFunction:
    address, there, pci_id, pci_class, *known, header, users = words
    if there != "yes":
        return FoundFunction(address, present=False)
    driver, group, override = (None if word == "-" else word for word in known)
    return FoundFunction(
        address,
        present=True,
        pci_id=pci_id,
        pci_class=pci_class,
        driver=driver,
        iommu_group=group,
        override=override,
        header=header,
        users=() if users == "-" else tuple(users.split(",")),
    )
