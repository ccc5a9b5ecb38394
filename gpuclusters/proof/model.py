"""What a proof is asked for: which nodes, which tests, which images.

Each test is a section of the configuration and an input of the resource: one model.

Images are pinned by digest and there is no default for any: NVIDIA's own pages name images by tags,
whose content we have neither run nor pinned, so which one is trusted is for the user to say.
`SUGGESTED` tells where to look.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.config.base import Integer, Percent, PinnedImage, Seconds, Section
from gpuclusters.domain.custom_resource import Name
from gpuclusters.gpu_operator.objects import NAMESPACE as OPERATOR_NAMESPACE
from gpuclusters.proof.checks import LEVEL_OF, Level, ProofTest

WHOLE = "nvidia.com/gpu"
SUGGESTED: Mapping[ProofTest, str] = {
    ProofTest.MATMUL: "an image with PyTorch, such as nvcr.io/nvidia/pytorch",
    ProofTest.DIAGNOSTICS: "an image with dcgmi; without one, that of the operator's own DCGM pods",
    ProofTest.LOAD: "an image with dcgmproftester, such as nvcr.io/nvidia/cloud-native/dcgm",
    ProofTest.BURN: "one that you built from github.com/wilicc/gpu-burn; there is no official one",
    ProofTest.COLLECTIVE: "an image with all_reduce_perf_mpi, such as nvcr.io/nvidia/pytorch",
}
"""What each test needs. Not run by us; `crane digest IMAGE:TAG` gives the digest to write."""

CudaMajor = Annotated[Integer, Field(ge=11, le=14)]


class Part(BaseModel):
    """Frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ProofNode(Part):
    """One node, as configured."""

    name: Name
    resources: dict[str, int] = Field(min_length=1)
    """How many of each resource it must offer; all of them are requested, unless it is shared."""
    product: str | None = None
    """Of `gpu_products`; None if nobody has read about it, which leaves it without a floor."""
    mig: bool = False
    """Whether its GPUs are cut."""
    shared: bool = False
    """Whether GPUs are shared in time or by MPS: one is requested, and its rate is not judged."""

    @property
    def whole_gpus(self) -> int:
        """How many GPUs a pod gets that are its own and not cut."""
        return 0 if self.mig or self.shared else self.resources.get(WHOLE, 0)

    @property
    def requests(self) -> Mapping[str, int]:
        """What a pod of a proof asks for."""
        return {
            name: 1 if self.shared else count for name, count in self.resources.items() if count
        }


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


AnyTest = Matmul | Diagnostics | Load | Burn | Collective


class PrometheusService(Part):
    """Where Prometheus answers, asked through the API server."""

    namespace: Name
    service: Name = "prometheus-operated"
    port: int = Field(default=9090, ge=1, le=65_535)


class ProofInputs(Part):
    """Inputs of a proof; whatever changes here makes it run again."""

    cluster: Name
    kubeconfig: str = Field(min_length=1, repr=False)
    level: Level
    nodes: tuple[ProofNode, ...]
    namespace: Name = "gpu-proof"
    operator_namespace: Name = OPERATOR_NAMESPACE
    matmul: Matmul | None = None
    diagnostics: Diagnostics | None = None
    load: Load | None = None
    burn: Burn | None = None
    collective: Collective | None = None
    prometheus: PrometheusService | None = None
    """None: no Prometheus is known, and nobody can say whether it saw the load."""
    tolerations: tuple[str, ...] = ()
    """Keys of taints beside `nvidia.com/gpu`."""
    driver: str | None = None
    """Version of the driver, where it is known."""
    operator: str | None = None
    """Version of the GPU operator."""
    programs: str | None = None
    """Digest of the programs that are mounted."""
    timeout_seconds: Seconds = 7200
    """All tests on all nodes together; each has its own bound beside it."""
    simulated: bool = False
    """Whether the GPUs are a lab's: a product on the processor is taken, and the evidence says so."""

    @property
    def natural_id(self) -> str:
        """`cluster/proof`."""
        return f"{self.cluster}/proof"

    @property
    def tests(self) -> tuple[ProofTest, ...]:
        """What this level runs, in order; a burn-in below its own level only if it is described."""
        return tuple(
            test
            for test, level in LEVEL_OF.items()
            if level <= self.level and self.test(test) is not None
        )

    def test(self, test: ProofTest) -> AnyTest | None:
        """How one test is to be run; None if it is not described."""
        found: AnyTest | None = getattr(self, test.value)
        return found

    @property
    def fingerprint(self) -> str:
        """Over everything but the kubeconfig, which may be renewed, and patience, which shows nothing."""
        shown = self.model_dump(mode="json", exclude={"kubeconfig", "timeout_seconds"})
        text = json.dumps(shown, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        problems = [*_names(self), *_missing(self), *_simulated(self), *_cuda(self)]
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _names(inputs: ProofInputs) -> Iterator[str]:
    names = [node.name for node in inputs.nodes]
    if not names:
        yield "nodes: there is none to prove"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"nodes: {name} is named twice"
    known = gpu_products.names()
    for node in inputs.nodes:
        if node.product is not None and node.product not in known:
            yield f"nodes: {node.name} has an unknown product {node.product!r}; leave it out"


def _missing(inputs: ProofInputs) -> Iterator[str]:
    for test, level in LEVEL_OF.items():
        # A burn-in has no official image: L4 goes without it, and says so.
        optional = test is ProofTest.BURN and inputs.level is not Level.L3
        if level <= inputs.level and inputs.test(test) is None and not optional:
            yield f"{test.value}: level {inputs.level} needs it; give it {SUGGESTED[test]}, by digest"


def _simulated(inputs: ProofInputs) -> Iterator[str]:
    if inputs.simulated and inputs.level > Level.L1:
        yield (
            f"level: {inputs.level} cannot be shown by simulated GPUs: DCGM, its load and NCCL need real "
            "ones; write L0 or L1"
        )


def _cuda(inputs: ProofInputs) -> Iterator[str]:
    stated = {
        test: part.cuda_major
        for test, part in ((ProofTest.MATMUL, inputs.matmul), (ProofTest.LOAD, inputs.load))
        if part is not None
    }
    for test, major in stated.items():
        most = cuda_of_driver(inputs.driver) if inputs.driver else None
        if most is not None and major > most:
            yield (
                f"{test.value}: its image has CUDA {major}, and driver {inputs.driver} runs images up to "
                f"CUDA {most}; take one with CUDA {most}"
            )
        for node in inputs.nodes:
            cuda, found = rke2_matrix.matrix().cuda.get(major), _architecture(node.product)
            if cuda is not None and found is not None and found.is_before(cuda.oldest):
                yield (
                    f"{test.value}: its image has CUDA {major}, which does not know the {node.product} of "
                    f"{node.name}; take one with CUDA {major - 1}"
                )


def _architecture(product: str | None) -> Architecture | None:
    known = product is not None and product in gpu_products.names()
    return gpu_products.product(product).architecture if product and known else None


def cuda_of_driver(driver: str) -> int | None:
    """Newest major version of CUDA whose images run on a driver; None for what is no version."""
    branch = driver.partition(".")[0]
    if not branch.isdecimal():
        return None
    return rke2_matrix.newest_cuda(int(branch))
