"""That a machine which was just made lets us in and is set up."""

from __future__ import annotations

import pulumi

from gpuclusters.domain.first_login import FirstLoginInputs
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import ModelResource


class FirstLoginProvider(ReconcilingProvider[FirstLoginInputs]):
    """Waits once for each machine; owns nothing on it."""

    model = FirstLoginInputs
    identity = frozenset({"connection.host"})

    def ensure(self, inputs: FirstLoginInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Logged in, and set up."""
        from gpuclusters.adapters.credentials import find_credentials
        from gpuclusters.adapters.first_login import wait_until_ready
        from gpuclusters.adapters.ssh import SshHost
        from gpuclusters.adapters.system import SystemClock

        credentials = find_credentials(self.ssh_key)
        host = SshHost(inputs.connection, credentials, connect_attempts=1)
        wait_until_ready(host, SystemClock(), inputs.timeout_seconds)
        return {"reached": inputs.instance}

    def observe(self, inputs: FirstLoginInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """That it was reached once stays true; whether it is up now, others see."""
        return Live({"reached": before.get("reached")}, {})

    def remove(self, inputs: FirstLoginInputs, before: Properties) -> None:
        """There is nothing to remove."""


class FirstLogin(ModelResource, module="gpu", name="FirstLogin"):
    """To depend on: the machine can be worked on."""

    provider = FirstLoginProvider
    reached: pulumi.Output[str]
    """The machine that was reached."""
