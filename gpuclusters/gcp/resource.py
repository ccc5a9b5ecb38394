"""Quota, machines, their host keys and the first login to each, beside what Pulumi's own provider makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult
from pydantic import Field

from gpuclusters.core.converge import Clock, Reporter
from gpuclusters.core.errors import DeniedError, UnreachableError
from gpuclusters.core.model import Strict
from gpuclusters.gcp import placement
from gpuclusters.gcp.model import GcpMachineInputs, GoogleAccess, Instance
from gpuclusters.gcp.placement import GcpQuotaInputs
from gpuclusters.host.model import HostConnection
from gpuclusters.providers.reconciling import GeneratedSecret, Live, Properties, ReconcilingProvider
from gpuclusters.providers.resource import ModelResource, Resource

if TYPE_CHECKING:
    from gpuclusters.gcp.api import GoogleCompute
    from gpuclusters.host.ssh import SshHost

ONCE = ("user_data", "create_timeout_seconds")
"""What matters while a machine is made. Later a difference is none: cloud-init reads its data once, and a new
version of this program must not make all machines anew."""
PAUSE_SECONDS = 5.0
"""Between two attempts to log in."""


def _access() -> dict[str, object]:
    """What the configuration of the stack says, as an input of our resources."""
    return GoogleAccess.of(pulumi.Config("gcp").get).model_dump(mode="json")


def _compute(google: GoogleAccess) -> GoogleCompute:
    """The Compute API, unless the configuration holds credentials of its own."""
    # Imported late: a preview reaches nothing.
    from gpuclusters.gcp.api import compute

    return compute(google)


class _GoogleResource(ModelResource):
    """Reached as the configuration of the stack says."""

    def __init__(
        self, name: str, /, opts: pulumi.ResourceOptions | None = None, **inputs: pulumi.Input[Any]
    ) -> None:
        super().__init__(name, opts, google=_access(), **inputs)


class GcpQuotaProvider(ReconcilingProvider[GcpQuotaInputs]):
    """Asks whenever the machines of a cluster change; owns nothing on Google Cloud."""

    model = GcpQuotaInputs
    identity = frozenset({"project", "region", "owner"})

    def ensure(self, inputs: GcpQuotaInputs, before: Properties) -> Properties:  # noqa: ARG002
        api = _compute(inputs.google)
        existing = {one.name for one in api.owned(inputs.project, inputs.owner)}
        quotas = api.quotas(inputs.project, inputs.region)
        return {"needed": placement.require(inputs, existing, quotas)}


class GcpQuota(_GoogleResource, module="gpu", name="GcpQuota"):
    """That the project may have the machines of a cluster."""

    provider = GcpQuotaProvider
    needed: pulumi.Output[dict[str, float]]


class GcpMachineProvider(ReconcilingProvider[GcpMachineInputs]):
    """Finds, makes, starts and deletes one machine; where it is stays where it is."""

    model = GcpMachineInputs
    identity = frozenset(
        (
            *("project", "name", "owner", "machine_type", "gpus", "provisioning"),
            *("accelerator", "accelerator.type", "accelerator.count"),
            *("disk.image", "disk.size_gib", "disk.type"),
            *("subnetwork", "public_address", "service_account", "scopes"),
        )
    )
    sensitive = frozenset({"user_data"})

    def diff(self, _id: str, olds: Properties, news: Properties) -> DiffResult:
        """Compare all but what matters once; pure."""
        kept = {key: olds[key] for key in ONCE if key in olds}
        return super().diff(_id, olds, {**news, **kept})

    def has_drifted(self, outputs: Properties) -> bool:
        return outputs.get("status") not in (None, placement.RUNNING)

    def ensure(self, inputs: GcpMachineInputs, before: Properties) -> Properties:  # noqa: ARG002
        return _outputs(inputs, _machine(inputs).ensure())

    def observe(self, inputs: GcpMachineInputs, before: Properties) -> Live | None:  # noqa: ARG002
        machine = _machine(inputs)
        live = machine.locate()
        return None if live is None else Live(_outputs(inputs, live), machine.drift(live))

    def remove(self, inputs: GcpMachineInputs, before: Properties) -> None:  # noqa: ARG002
        _machine(inputs).remove()


def _machine(inputs: GcpMachineInputs) -> placement.Machine:
    return placement.Machine(inputs, _compute(inputs.google), Clock(), Reporter())


def _outputs(inputs: GcpMachineInputs, live: Instance) -> Properties:
    return {
        "zone": live.zone,
        "status": live.status,
        "instance_id": live.instance_id,
        "internal_address": live.address,
        "address": live.public_address if inputs.public_address else live.address,
    }


class GcpMachine(_GoogleResource, module="gpu", name="GcpMachine"):
    provider = GcpMachineProvider
    zone: pulumi.Output[str]
    status: pulumi.Output[str]
    instance_id: pulumi.Output[str]
    """Another one is another machine, with other GPUs."""
    internal_address: pulumi.Output[str]
    address: pulumi.Output[str]
    """Where its SSH server is reached: on the internet if it has an address there."""


class SshHostKeyProvider(GeneratedSecret):
    """Makes a key pair, once: the first connection to the machine is verified already."""

    owner = "machine"

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make it; no machine is touched, so nothing is lost if this is interrupted."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        machine = str(props["machine"])
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        outputs = {"private_key": private.decode(), "public_key": public.decode()}
        return CreateResult(f"{machine}/ssh-host-key", {"machine": machine, **outputs})


class SshHostKey(Resource, module="gpu", name="SshHostKey"):
    """An Ed25519 key pair for the SSH server of one machine."""

    private_key: pulumi.Output[str]
    """In OpenSSH's format. Secret: who has it can pretend to be the machine."""
    public_key: pulumi.Output[str]
    """Type and key, as a connection pins it."""

    def __init__(
        self, name: str, *, machine: str, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=["private_key"])
        super().__init__(
            name,
            {"machine": machine, "private_key": None, "public_key": None},
            pulumi.ResourceOptions.merge(opts, secret),
        )


class FirstLoginInputs(Strict):
    """Which machine is waited for, and how long."""

    connection: HostConnection
    instance: str
    """Another one is another machine under the same name, and is waited for again."""
    timeout_seconds: Annotated[int, Field(ge=10, le=7200)] = 900

    @property
    def natural_id(self) -> str:
        return f"{self.connection.host}/first-login"


def wait_until_ready(host: SshHost, clock: Clock, seconds: float) -> None:
    """Wait until a machine lets us in and is set up; one with another host key is not waited for."""
    from gpuclusters.host.script import run_script

    script, tried, end = "gcp/first-login", "wait for its set-up", clock.now() + seconds
    while True:
        left = max(1.0, end - clock.now())
        try:
            run_script(host, script, [], tried=tried, repeatable=True, timeout_seconds=left)
        except (UnreachableError, DeniedError) as error:
            # Not let in: the account is made after the SSH server has started.
            if clock.now() + PAUSE_SECONDS >= end:
                problem = f"{error.problem}, for {seconds:g} s since it was made"
                more = (
                    "what it says while it boots: `gcloud compute instances get-serial-port-output`"
                )
                remedy = f"{error.remedy}; {more}"
                raise type(error)(error.where, error.tried, problem, remedy) from error
        else:
            return
        clock.sleep(PAUSE_SECONDS)


class FirstLoginProvider(ReconcilingProvider[FirstLoginInputs]):
    """Waits once for each machine; owns nothing on it."""

    model = FirstLoginInputs
    identity = frozenset({"connection.host"})

    def ensure(self, inputs: FirstLoginInputs, before: Properties) -> Properties:  # noqa: ARG002
        from gpuclusters.host.connect import find_credentials
        from gpuclusters.host.ssh import SshHost

        credentials = find_credentials(self.ssh_key)
        host = SshHost(inputs.connection, credentials, connect_attempts=1)
        wait_until_ready(host, Clock(), inputs.timeout_seconds)
        return {"reached": inputs.instance}


class FirstLogin(ModelResource, module="gpu", name="FirstLogin"):
    """To depend on: the machine can be worked on."""

    provider = FirstLoginProvider
    reached: pulumi.Output[str]
