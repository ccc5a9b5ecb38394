"""`HostFile`: one file on a host."""

import pulumi

from gpuclusters.host.model import HostFileSpec
from gpuclusters.providers.reconciling import ConvergingProvider
from gpuclusters.providers.resource import ConvergingResource


class HostFileProvider(ConvergingProvider[HostFileSpec]):
    """Keeps one file; a file with equal content counts as ours."""

    model = HostFileSpec
    identity = frozenset({"connection.host", "path"})
    # Files may hold tokens; engines mask a secret input, but not a message.
    sensitive = frozenset({"content"})
    kept_by = "gpuclusters.host.capability:FileCapability.on"


class HostFile(ConvergingResource, module="gpu", name="HostFile"):
    """A file on a host, with content, mode and owner."""

    provider = HostFileProvider
    path: pulumi.Output[str]
    sha256: pulumi.Output[str]
    """Digest of the content that is on the host."""
