"""How a host is reached over SSH, as an argument of components."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import pulumi
from pulumi_command import remote

from gpuclusters.core import scripts


@dataclass(frozen=True, kw_only=True, slots=True)
class HostConnection:
    """One machine. Its host key is mandatory: a machine that cannot prove who it is gets no command.

    The private key is no part of it; see `root_script` and the providers' own configuration.
    """

    host: str
    """The machine's name in the configuration; part of the ids of what lives on it."""
    address: pulumi.Input[str]
    port: pulumi.Input[int]
    user: pulumi.Input[str]
    host_key: pulumi.Input[str]
    iap: pulumi.Input[dict[str, Any]] | None = None
    """Project, zone and name on Google Cloud of a machine that is reached through Identity-Aware Proxy."""
    machine: pulumi.Input[str] | None = None
    """Id of a machine that this program makes: another one under the same name is prepared anew."""

    def as_input(self) -> dict[str, pulumi.Input[Any]]:
        """The connection as a property of a dynamic resource."""
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in stated.items() if value is not None}

    def root_script(
        self,
        name: str,
        private_key: pulumi.Input[str] | None,
        script: str,
        words: Sequence[str],
        opts: pulumi.ResourceOptions,
        **more: Any,
    ) -> remote.Command:
        """A script of ours that root runs on the host; `pulumi_command` opens no tunnel: refused then."""
        if self.iap is not None:
            raise pulumi.RunError(
                f"{self.host} is reached through Identity-Aware Proxy, which pulumi-command cannot do"
            )
        connection = remote.ConnectionArgs(
            host=self.address,
            port=pulumi.Output.from_input(self.port).apply(float),
            user=self.user,
            host_key=self.host_key,
            private_key=private_key,
            dial_error_limit=10,
            per_dial_timeout=15,
        )
        return remote.Command(
            name,
            connection=connection,
            create=f"sudo -n sh -s -- {shlex.join(words)}",
            stdin=scripts.read(script),
            add_previous_output_in_env=False,
            opts=opts,
            **more,
        )
