"""What a proof is asked for: which nodes, which tests, which images.

Images are pinned by digest and there is no default for any: NVIDIA's own pages name images by tags,
whose content we have neither run nor pinned, so which one is trusted is for the user to say.
`SUGGESTED` tells where to look.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gpuclusters.domain import gpu_products, rke2_matrix
from gpuclusters.domain.custom_resource import Name
from gpuclusters.domain.gpu_products import Architecture
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

_PINNED = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}")


def _pinned(value: str) -> str:
    if not _PINNED.fullmatch(value):
        raise ValueError(
            "must name an image by its digest, registry/name@sha256:…, as `crane digest` gives it; a "
            "tag may be another image tomorrow"
        )
    return value


Image = Annotated[str, AfterValidator(_pinned)]
Seconds = Annotated[int, Field(gt=0, le=86_400)]
Percent = Annotated[int, Field(ge=1, le=100)]


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


class MatmulTest(Part):
    """Every GPU multiplies matrices."""

    image: Image
    cuda_major: int = Field(ge=11, le=14)
    floor_percent: Percent = 70
    """Least rate, as a share of the data sheet's."""
    timeout_seconds: Seconds = 600
    """On one node, the pull of the image included; as in all tests."""


class DiagnosticsTest(Part):
    """`dcgmi diag` against the node's own host engine."""

    image: Image | None = None
    """None: that of the DCGM pod on the node, by the digest that its kubelet reports."""
    run_level: int = Field(default=2, ge=1, le=4)
    timeout_seconds: Seconds = 900


class LoadTest(Part):
    """A load on the tensor cores that Prometheus must show."""

    image: Image
    cuda_major: int = Field(ge=11, le=14)
    """Part of the program's name."""
    seconds: Seconds = 60
    tensor_active_percent: Percent = 50
    timeout_seconds: Seconds = 900


class BurnTest(Part):
    """gpu-burn."""

    image: Image
    seconds: Seconds = 300
    timeout_seconds: Seconds = 1800


class CollectiveTest(Part):
    """nccl-tests on each node with more than one GPU."""

    image: Image
    floor_gb_per_second: int = Field(ge=1, le=10_000)
    timeout_seconds: Seconds = 1800


AnyTest = MatmulTest | DiagnosticsTest | LoadTest | BurnTest | CollectiveTest


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
    matmul: MatmulTest | None = None
    diagnostics: DiagnosticsTest | None = None
    load: LoadTest | None = None
    burn: BurnTest | None = None
    collective: CollectiveTest | None = None
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
