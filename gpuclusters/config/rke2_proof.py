"""`proof` of an `rke2` cluster: each level does what those below it do, and its own work."""

from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.core.section import DnsLabel, Section
from gpuclusters.proof.model import Burn, Collective, Diagnostics, Load, Matmul


class _Proof(Section):
    namespace: DnsLabel = "gpu-proof"
    """Namespace of the jobs, made by this program."""


class _Calculation(_Proof):
    matmul: Matmul
    """The calculation."""


class _Load(_Calculation):
    diagnostics: Diagnostics = Field(default_factory=Diagnostics)
    """DCGM's diagnostics."""
    load: Load
    """The load."""


class _BurnIn(_Load):
    burn: Burn
    """The burn-in."""


class ProofL0(_Proof):
    """The validator's pods passed, and every node offers the GPUs that it should."""

    level: Literal["L0"]
    """What has to be shown: L0 to L4."""


class ProofL1(_Calculation):
    """Also: every GPU calculates, correctly and fast enough."""

    level: Literal["L1"]
    """What has to be shown: L0 to L4."""


class ProofL2(_Load):
    """Also: DCGM's diagnostics pass, and a load is seen in the metrics."""

    level: Literal["L2"]
    """What has to be shown: L0 to L4."""


class ProofL3(_BurnIn):
    """Also: every GPU stands minutes at its limits."""

    level: Literal["L3"]
    """What has to be shown: L0 to L4."""


class ProofL4(_BurnIn):
    """Also: the GPUs of a node exchange data as fast as they should."""

    level: Literal["L4"]
    """What has to be shown: L0 to L4."""
    collective: Collective
    """The exchange."""


Proof = Annotated[ProofL0 | ProofL1 | ProofL2 | ProofL3 | ProofL4, Field(discriminator="level")]
