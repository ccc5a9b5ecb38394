"""That a machine which was just made lets us in and is set up: its SSH server starts, its account is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import pulumi
from pydantic import BaseModel, ConfigDict, Field

from gpuclusters.core.converge import Clock, SystemClock
from gpuclusters.core.errors import AdapterError, DeniedError, UnreachableError
from gpuclusters.host.model import HostConnection
from gpuclusters.providers.reconciling import Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import ModelResource

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost

PAUSE_SECONDS = 5.0


class FirstLoginInputs(BaseModel):
    """Which machine is waited for, and how long."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    instance: str
    """Another one is another machine under the same name, and is waited for again."""
    timeout_seconds: Annotated[int, Field(ge=10, le=7200)] = 900

    @property
    def natural_id(self) -> str:
        """One for each machine."""
        return f"{self.connection.host}/first-login"


def wait_until_ready(
    host: SshHost, clock: Clock, seconds: float, *, pause: float = PAUSE_SECONDS
) -> None:
    """Log in and wait until the machine has been set up.

    A machine that shows another key is not waited for: it had its key before its SSH server started.

    Args:
        host: the machine; it should try each connection once.
        clock: of this computer.
        seconds: how long all of it may take.
        pause: seconds between two attempts.

    Raises:
        AdapterError: not there in time, another key, or its set-up failed.
    """
    from gpuclusters.host.script import run_script

    end = clock.now() + seconds
    while True:
        try:
            run_script(
                host,
                "gcp/first-login",
                [],
                tried="wait for its set-up",
                repeatable=True,
                timeout_seconds=max(1.0, end - clock.now()),
            )
        except (UnreachableError, DeniedError) as error:
            # Not let in: the account is made after the SSH server has started.
            if clock.now() + pause >= end:
                raise _late(error, seconds) from error
            clock.sleep(pause)
        else:
            return


def _late(error: AdapterError, seconds: float) -> AdapterError:
    return type(error)(
        error.where,
        error.tried,
        f"{error.problem}, for {seconds:g} s since it was made",
        f"{error.remedy}; what it says while it boots: `gcloud compute instances"
        " get-serial-port-output`",
    )


class FirstLoginProvider(ReconcilingProvider[FirstLoginInputs]):
    """Waits once for each machine; owns nothing on it."""

    model = FirstLoginInputs
    identity = frozenset({"connection.host"})

    def ensure(self, inputs: FirstLoginInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Logged in, and set up."""
        from gpuclusters.host.connect import find_credentials
        from gpuclusters.host.ssh import SshHost

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
