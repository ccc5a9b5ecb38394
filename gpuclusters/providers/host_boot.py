"""What a host boots with: kernel arguments, modules, huge pages, limits; rebooted only if allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import adoption_host, reconcile_boot
from gpuclusters.domain.host_boot import BootState, HostBootInputs
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.host_boot import SshBootHost
    from gpuclusters.adapters.node_files import SshNodeFiles


class HostBootProvider(KeptProvider[HostBootInputs]):
    """Keeps the arguments and files of one host."""

    model = HostBootInputs
    changes_machine = True
    identity = frozenset({"connection.host"})

    def ensure(self, inputs: HostBootInputs, before: Properties) -> Properties:
        """Write what differs, and reboot when the kernel lacks something."""
        from gpuclusters.adapters.here import StderrReporter

        boot, files = self._reach(inputs)
        state = reconcile_boot.ensure(
            inputs, boot, files, StderrReporter(), before=sorted(before.get("files") or {})
        )
        return _outputs(state, ())

    def differences(self, inputs: HostBootInputs) -> Sequence[str]:
        """Of files that are there, and of the running kernel."""
        return [*adoption_host.boot(inputs, *self._reach(inputs)[0].state(sorted(inputs.files)))]

    def observe(self, inputs: HostBootInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The boot as it is."""
        boot, _ = self._reach(inputs)
        state, found = boot.state(sorted(inputs.files))
        if not state.ours and all(file.digest is None for file in found.values()):
            return None
        return Live(_outputs(state, reconcile_boot.drift(inputs, state, found)), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether a refresh found something changed."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: HostBootInputs, before: Properties) -> None:  # noqa: ARG002
        """Take out what we have set, for the next boot."""
        from gpuclusters.adapters.here import StderrReporter

        reconcile_boot.remove(inputs, *self._reach(inputs), StderrReporter())

    def _reach(self, inputs: HostBootInputs) -> tuple[SshBootHost, SshNodeFiles]:
        from gpuclusters.adapters.here import SystemClock
        from gpuclusters.adapters.host_boot import SshBootHost
        from gpuclusters.adapters.node_files import SshNodeFiles

        reached = host(inputs.connection, self.ssh_key)
        return SshBootHost(reached, SystemClock()), SshNodeFiles(reached)


def _outputs(state: BootState, said: Sequence[str]) -> Properties:
    return {
        "boot_id": state.boot_id,
        "kernel_command_line": state.running,
        "drift": list(said),
    }


class HostBoot(Resource, module="gpu", name="HostBoot"):
    """Kernel arguments and files of a host that are in effect: proven by its running command line."""

    boot_id: pulumi.Output[str]
    """Of the boot in which they are in effect."""
    kernel_command_line: pulumi.Output[str]
    drift: pulumi.Output[Sequence[str]]
    """In words, what a refresh found different on the host; empty after `up`."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        kernel_arguments: Sequence[pulumi.Input[str]],
        files: Mapping[str, pulumi.Input[str]],
        huge_pages_1g: Mapping[str, pulumi.Input[int]] | None = None,
        reboot: pulumi.Input[str] = "refuse",
        reboot_timeout_seconds: pulumi.Input[int] = 1200,
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        properties: dict[str, Any] = {
            "connection": connection,
            "kernel_arguments": kernel_arguments,
            "files": files,
            "huge_pages_1g": huge_pages_1g or {},
            "reboot": reboot,
            "reboot_timeout_seconds": reboot_timeout_seconds,
            "adopt": adopt,
            "boot_id": None,
            "kernel_command_line": None,
            "drift": None,
        }
        super().__init__(name, properties, opts)
