"""`proof` of an `rke2` cluster: what has to be shown before its GPUs are called working.

Each level does what those below it do, and its own work; keys of a level cannot be written below it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gpuclusters.config.base import DnsLabel, Integer, Percent, PinnedImage, Seconds, Section

CudaMajor = Annotated[Integer, Field(ge=11, le=14)]


class Matmul(Section):
    """Every GPU multiplies matrices; the result is compared with a reference, the rate with a floor."""

    image: PinnedImage
    """Image with PyTorch, by digest, for a CUDA that the driver knows."""
    cuda_major: CudaMajor
    """Major version of CUDA in it: 12 for Volta and Pascal, which CUDA 13 no longer knows."""
    floor_percent: Percent = 70
    """Least rate, as a share of what the product's data sheet says."""
    timeout_seconds: Seconds = 600
    """How long it may take on one node, the pull of its image included."""


class Diagnostics(Section):
    """`dcgmi diag` against each node's own DCGM. The GPUs must be idle."""

    image: PinnedImage | None = None
    """Image with dcgmi, by digest; by default that of the operator's own DCGM pods."""
    run_level: Annotated[Integer, Field(ge=1, le=4)] = 2
    """-r: 1 takes seconds, 2 about two minutes, 3 a quarter of an hour, 4 longer."""
    timeout_seconds: Seconds = 900
    """How long it may take on one node, the pull of its image included."""


class Load(Section):
    """A load on the tensor cores, which must be seen in the metrics too."""

    image: PinnedImage
    """Image with dcgmproftester, by digest."""
    cuda_major: CudaMajor
    """Major version of CUDA in it, part of the program's name: dcgmproftester12, dcgmproftester13."""
    seconds: Annotated[Integer, Field(ge=30, le=3600)] = 60
    """How long the load runs."""
    tensor_active_percent: Percent = 50
    """Least share of time that DCGM_FI_PROF_PIPE_TENSOR_ACTIVE must show."""
    timeout_seconds: Seconds = 900
    """How long it may take on one node, the pull of its image included."""


class Burn(Section):
    """Every GPU at its limits of power and heat; none may give a wrong result."""

    image: PinnedImage
    """Image with gpu_burn, by digest. There is no official one."""
    seconds: Annotated[Integer, Field(ge=30, le=86_400)] = 300
    """How long it runs."""
    timeout_seconds: Seconds = 1800
    """How long it may take on one node, the pull of its image included."""


class Collective(Section):
    """nccl-tests: all_reduce over all GPUs of a node."""

    image: PinnedImage
    """Image with all_reduce_perf_mpi, by digest."""
    floor_gb_per_second: Annotated[Integer, Field(ge=1, le=10_000)]
    """Least bus bandwidth at the largest size, in GB/s."""
    timeout_seconds: Seconds = 1800
    """How long it may take on one node, the pull of its image included."""


class _Proof(Section):
    namespace: DnsLabel = "gpu-proof"
    """Namespace of the jobs, made by this program."""


class ProofL0(_Proof):
    """The validator's pods passed, and every node offers the GPUs that it should."""

    level: Literal["L0"]
    """What has to be shown: L0 to L4."""


class ProofL1(_Proof):
    """Also: every GPU calculates, correctly and fast enough."""

    level: Literal["L1"]
    """What has to be shown: L0 to L4."""
    matmul: Matmul
    """The calculation."""


class ProofL2(_Proof):
    """Also: DCGM's diagnostics pass, and a load is seen in the metrics."""

    level: Literal["L2"]
    """What has to be shown: L0 to L4."""
    matmul: Matmul
    """The calculation."""
    diagnostics: Diagnostics = Field(default_factory=Diagnostics)
    """DCGM's diagnostics."""
    load: Load
    """The load."""


class ProofL3(_Proof):
    """Also: every GPU stands minutes at its limits."""

    level: Literal["L3"]
    """What has to be shown: L0 to L4."""
    matmul: Matmul
    """The calculation."""
    diagnostics: Diagnostics = Field(default_factory=Diagnostics)
    """DCGM's diagnostics."""
    load: Load
    """The load."""
    burn: Burn
    """The burn-in."""


class ProofL4(_Proof):
    """Also: the GPUs of a node exchange data as fast as they should."""

    level: Literal["L4"]
    """What has to be shown: L0 to L4."""
    matmul: Matmul
    """The calculation."""
    diagnostics: Diagnostics = Field(default_factory=Diagnostics)
    """DCGM's diagnostics."""
    load: Load
    """The load."""
    burn: Burn
    """The burn-in."""
    collective: Collective
    """The exchange."""


Proof = Annotated[ProofL0 | ProofL1 | ProofL2 | ProofL3 | ProofL4, Field(discriminator="level")]
