"""What a proof is asked for: which nodes, which tests, which images.

Each test is a section of the configuration and an input of the resource, and says what it runs: one model.

Images are pinned by digest and there is no default for any: NVIDIA's own pages name images by tags,
whose content we have neither run nor pinned, so which one is trusted is for the user to say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from gpuclusters.compat import gpu_products, rke2_matrix
from gpuclusters.core.custom_resource import ClusterInputs, Name
from gpuclusters.core.model import Strict
from gpuclusters.core.section import (
    Count,
    DnsLabel,
    Flag,
    Integer,
    Percent,
    PinnedImage,
    Seconds,
    Section,
    Text,
    matches,
)
from gpuclusters.gpu_operator.objects import NAMESPACE as OPERATOR_NAMESPACE
from gpuclusters.proof import training_times
from gpuclusters.proof.checks import CLUSTER_RUNGS, GKE, USERNETES, CheckLevel, Ladder, Level

WHOLE = "nvidia.com/gpu"
"""The resource of GPUs that are not cut, as the device plugin offers them."""
FOLDER = "/proof"
"""Where the programs that we bring are mounted."""

CudaMajor = Annotated[Integer, Field(ge=11, le=14)]
_Seconds = Annotated[int, Field(gt=0, le=86_400)]

LADDER_NAMESPACE = "gpu-ladder"
VECTOR_ADD_IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
"""Of the device plugin's README; CUDA 12 still has code for Volta."""
NETWORK_IMAGE = "docker.io/library/python:3.13.7-alpine3.22"
"""For the network's test where no image with Python is named."""
DATA_PATH = "/opt/pytorch-mnist/data"
"""Where the image that ran on V100s in 2025 keeps them."""

LadderImage = Annotated[
    Text,
    matches(
        r"(?!.*:latest$)[a-z0-9][a-zA-Z0-9._:/-]*(@sha256:[0-9a-f]{64}|:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})",
        "lasting-image",
    ),
]


class ProofNode(Strict):
    name: Name
    resources: dict[str, int] = Field(min_length=1)
    """How many of each resource it must offer; all of them are requested, unless it is shared."""
    product: str | None = None
    """As `gpu_products` writes it; None if nobody said, which leaves it without a floor."""
    mig: bool = False
    shared: bool = False
    """Whether GPUs are shared in time or by MPS: one is requested, and its rate is not judged."""

    @property
    def whole_gpus(self) -> int:
        """How many GPUs a pod gets that are its own and not cut."""
        return 0 if self.mig or self.shared else self.resources.get(WHOLE, 0)

    @property
    def requests(self) -> Mapping[str, int]:
        """What a pod of a proof asks for."""
        return {r: 1 if self.shared else n for r, n in self.resources.items() if n}


class ProofTest(Section):
    name: ClassVar[str]
    level: ClassVar[Level]
    """From which on it is run."""
    needs: ClassVar[str]
    """The image to look for. Not run by us; `crane digest IMAGE:TAG` gives the digest to write."""
    program: ClassVar[str] = ""
    """File of gpuclusters/proof/scripts that is mounted; without one it is a program of the image."""
    runs: ClassVar[tuple[str, ...]]
    """What its container runs; in braces, values of the `test`, its `node` and the `engine` of that."""
    whole_gpus: ClassVar[int] = 1
    """How many a node must have that are not cut and that nobody shares, for it to mean anything."""

    def concerns(self, node: ProofNode) -> bool:
        return node.whole_gpus >= self.whole_gpus

    def command(self, node: ProofNode, engine: str) -> Sequence[str]:
        """What its container runs; `engine`: address of the node's DCGM."""
        return [word.format(test=self, node=node, engine=engine) for word in self.runs]


class Matmul(ProofTest):
    """Every GPU multiplies matrices; the result is compared with a reference, the rate with a floor."""

    name = "matmul"
    level = Level.L1
    needs = "an image with PyTorch, such as nvcr.io/nvidia/pytorch"
    program = "matmul.py"
    arguments: ClassVar = ("--size", "8192", "--seconds", "5")
    """Of the program, wherever it runs."""
    runs = ("python3", f"{FOLDER}/{program}", *arguments)
    whole_gpus = 0

    image: PinnedImage
    """Image with PyTorch, by digest, for a CUDA that the driver knows."""
    cuda_major: CudaMajor
    """Major version of CUDA in it: 12 for Volta and Pascal, which CUDA 13 no longer knows."""
    floor_percent: Percent = 70
    """Least rate, as a share of what the product's data sheet says."""
    floor_tflops: Annotated[Integer, Field(ge=1, le=100_000)] | None = None
    """Least rate of GPUs whose data sheet is not in the table, dense in half precision."""
    timeout_seconds: Seconds = 600
    """How long it may take on one node, the pull of its image included."""


class ContainerProof(Section):
    """Containers with 1, 2, 4 and 8 GPUs, run through the public API by a tenant: each GPU multiplies."""

    tenant: DnsLabel
    """Who runs them."""
    image: LadderImage
    """Image with PyTorch, by digest or by a tag that stays, one that the tenant may run."""
    floor_percent: Percent = 70
    """Least rate, as a share of what the product's data sheet says."""
    timeout_seconds: Seconds = 2700
    """How long one container may take, its place in the queue and the boot of its VM included."""
    token_file: Text | None = None
    """File with a token of the tenant, on the computer that runs `gpu-clusters`; by default that of --token.
    The lab makes its own."""
    after_up: Flag = False
    """Whether `gpu-clusters up` ends with it. `pulumi up` does not."""


class Diagnostics(ProofTest):
    """`dcgmi diag` against each node's own DCGM. The GPUs must be idle."""

    name = "diagnostics"
    level = Level.L2
    needs = "an image with dcgmi; without one, that of the operator's own DCGM pods"
    program = "diagnostics.sh"
    runs = ("sh", f"{FOLDER}/{program}", "{engine}", "{test.run_level}")

    image: PinnedImage | None = None
    """Image with dcgmi, by digest; by default that of the operator's own DCGM pods."""
    run_level: Annotated[Integer, Field(ge=1, le=4)] = 2
    """-r: 1 takes seconds, 2 about two minutes, 3 a quarter of an hour, 4 longer."""
    timeout_seconds: Seconds = 900
    """How long it may take on one node, the pull of its image included."""


class Load(ProofTest):
    """A load on the tensor cores, which must be seen in the metrics too."""

    name = "load"
    level = Level.L2
    needs = "an image with dcgmproftester, such as nvcr.io/nvidia/cloud-native/dcgm"
    program = "load.sh"
    runs = ("sh", f"{FOLDER}/{program}", "{test.cuda_major}", "{test.seconds}")

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


class Burn(ProofTest):
    """Every GPU at its limits of power and heat; none may give a wrong result."""

    name = "burn"
    level = Level.L3
    needs = "one that you built from github.com/wilicc/gpu-burn; there is no official one"
    # Relative to the image's folder, as its own Dockerfile has it.
    runs = ("./gpu_burn", "-tc", "{test.seconds}")

    image: PinnedImage
    """Image with gpu_burn, by digest. There is no official one."""
    seconds: Annotated[Integer, Field(ge=30, le=86_400)] = 300
    """How long it runs."""
    timeout_seconds: Seconds = 1800
    """How long it may take on one node, the pull of its image included."""


class Collective(ProofTest):
    """nccl-tests: all_reduce over all GPUs of a node."""

    name = "collective"
    level = Level.L4
    needs = "an image with all_reduce_perf_mpi, such as nvcr.io/nvidia/pytorch"
    runs = (
        "/usr/local/bin/all_reduce_perf_mpi",
        *("-b", "8", "-e", "8G", "-f", "2", "-g", "{node.whole_gpus}"),
    )
    whole_gpus = 2

    image: PinnedImage
    """Image with all_reduce_perf_mpi, by digest."""
    floor_gb_per_second: Annotated[Integer, Field(ge=1, le=10_000)]
    """Least bus bandwidth at the largest size, in GB/s."""
    timeout_seconds: Seconds = 1800
    """How long it may take on one node, the pull of its image included."""


AnyTest = Matmul | Diagnostics | Load | Burn | Collective
TESTS: tuple[type[AnyTest], ...] = get_args(AnyTest)
"""In the order in which they run."""
PROGRAMS = tuple(test.program for test in TESTS if test.program)


class PrometheusService(Strict):
    """Where Prometheus answers, asked through the API server."""

    namespace: Name
    service: Name = "prometheus-operated"
    port: int = Field(default=9090, ge=1, le=65_535)


class RunInputs(ClusterInputs):
    """What both ladders are asked for; whatever changes here makes them be climbed again."""

    unshown: ClassVar[frozenset[str]] = frozenset({"kubeconfig", "timeout_seconds"})
    """A kubeconfig may be renewed, and how long is waited shows nothing."""

    tolerations: tuple[str, ...] = ()
    """Keys of taints beside `nvidia.com/gpu`."""
    programs: str | None = None
    """Digest of the programs that are mounted."""
    simulated: bool = False
    """Whether machines and GPUs are a lab's: the processor will do, and the evidence says so."""

    @property
    def fingerprint(self) -> str:
        """Over everything that is shown."""
        shown = self.model_dump(mode="json", exclude=set(self.unshown))
        return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()

    def problems(self) -> Iterator[str]:
        raise NotImplementedError

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if problems := list(self.problems()):
            raise ValueError("; ".join(problems))
        return self


def _names(nodes: Sequence[ProofNode] | Sequence[LadderNode]) -> Iterator[str]:
    names = [node.name for node in nodes]
    if not names:
        yield "nodes: there is none to prove"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"nodes: {name} is named twice"


class ProofInputs(RunInputs):
    """Inputs of a proof; whatever changes here makes it run again."""

    called = "proof"

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
    driver: str | None = None
    operator: str | None = None
    timeout_seconds: Seconds = 7200
    """All tests on all nodes together; each has its own bound beside it."""

    @property
    def tests(self) -> tuple[AnyTest, ...]:
        """What this level runs, in order; a burn-in below its own level only if it is described."""
        stated = (self.matmul, self.diagnostics, self.load, self.burn, self.collective)
        return tuple(test for test in stated if test is not None and test.level <= self.level)

    def problems(self) -> Iterator[str]:
        yield from _names(self.nodes)
        for node in self.nodes:
            if node.product is not None and _generation(node.product) is None:
                yield f"nodes: {node.name} has an unknown product {node.product!r}; leave it out"
        for test in TESTS:
            # A burn-in has no official image: L4 goes without it, and says so.
            optional = test is Burn and self.level is not Level.L3
            if test.level <= self.level and getattr(self, test.name) is None and not optional:
                wanted = f"level {self.level} needs it; give it {test.needs}, by digest"
                yield f"{test.name}: {wanted}"
        if self.simulated and self.level > Level.L1:
            yield (
                f"level: {self.level} cannot be shown by simulated GPUs: DCGM, its load and NCCL need real "
                "ones; write L0 or L1"
            )
        for part in (self.matmul, self.load):
            if part is not None:
                has = f"{part.name}: its image has CUDA {part.cuda_major}"
                found = _cuda(part.cuda_major, self.driver, self.nodes)
                yield from (f"{has}, {one}" for one in found)


def _cuda(major: int, driver: str | None, nodes: Sequence[ProofNode]) -> Iterator[str]:
    most = cuda_of_driver(driver) if driver else None
    if most is not None and major > most:
        yield f"and driver {driver} runs images up to CUDA {most}; take one with CUDA {most}"
    cuda = rke2_matrix.matrix().cuda.get(major)
    for node in nodes:
        one = _generation(node.product or "")
        if cuda is not None and one is not None and one.is_before(cuda.oldest):
            what = f"which does not know the {node.product} of {node.name}"
            yield f"{what}; take one with CUDA {major - 1}"


def _generation(product: str) -> gpu_products.Architecture | None:
    """None of what is no product."""
    try:
        return gpu_products.product(product).architecture
    except KeyError:
        return None


def cuda_of_driver(driver: str) -> int | None:
    """Newest major version of CUDA whose images run on a driver; None for what is no version."""
    branch = driver.partition(".")[0]
    return rke2_matrix.newest_cuda(int(branch)) if branch.isdecimal() else None


class LadderNode(Strict):
    name: Name
    gpus: int = Field(ge=1, le=16)
    takes_pods: bool = True
    """False for a control plane that keeps its taint: rungs 6, 8 and 9 leave it out."""


class LadderPool(Strict):
    """Nodes whose names a cloud makes up: those of one node pool."""

    name: Name
    nodes: int = Field(ge=1)
    """How many of them are looked at; an autoscaler may have added more."""
    gpus: int = Field(ge=1, le=16)


Dotted = Annotated[Text, matches(r"[0-9]{1,2}\.[0-9]{1,2}(\.[0-9]{1,2})?", "dotted-version")]
Folder = Annotated[Text, matches(r"(?!.*/\.\.(/|$))(/[A-Za-z0-9._-]+)+", "container-folder")]


class BakedData(Section):
    """The image has the data: nothing is downloaded, and no server can be down."""

    source: Literal["baked"]
    """Where the data is."""
    path: Folder = DATA_PATH
    """Folder in the image that has FashionMNIST/raw."""


class VolumeData(Section):
    """A volume has the data; every pod must be able to mount it."""

    source: Literal["volume"]
    """Where the data is."""
    claim: DnsLabel
    """PersistentVolumeClaim in the proof's namespace."""
    path: Folder = "/data"
    """Where it is mounted; it has FashionMNIST/raw."""


class Training(Section):
    """A training over all nodes by PyTorch DDP and NCCL: one pod for each node, as an indexed Job."""

    image: PinnedImage
    """Image with PyTorch for CUDA, by digest."""
    cuda: Dotted | None = None
    """CUDA in the image, "12.6". Volta has none after 12.9."""
    pytorch: Dotted | None = None
    """PyTorch in the image, "2.7". From 2.8 on only builds for CUDA 12.6 have code for Volta."""
    largest_uid: Annotated[Integer | None, Field(ge=0, le=4_294_967_295)] = None
    """Largest uid or gid that owns a file in the image. Above 65535 rootless engines cannot unpack it."""
    pods: Count | None = None
    """How many pods; by default one on every node that takes pods."""
    gpus_per_pod: Count | None = None
    """GPUs of each pod; by default all of a node."""
    epochs: Annotated[Integer, Field(ge=1, le=100)] = 4
    """Passes over the data."""
    batch_size: Annotated[Integer, Field(ge=1, le=8192)] = 128
    """Pictures of one step on one GPU."""
    accuracy_floor_percent: Annotated[Integer, Field(ge=1, le=99)] = 70
    """Least accuracy, in percent. FashionMNIST came to about 81 after 4 epochs on two nodes."""
    data: Annotated[BakedData | VolumeData, Field(discriminator="source")] = Field(
        default_factory=lambda: BakedData.model_validate({"source": "baked"})
    )
    """Where FashionMNIST is."""
    timeout_seconds: Seconds | None = None
    """How long it may take, the pull of the image included; by default what so many nodes took in 2025,
    with room. The network costs: 32 nodes took 6 minutes where a managed cluster takes 46 seconds."""

    @property
    def accuracy_floor(self) -> float:
        """Share of the test images that must be recognised."""
        return self.accuracy_floor_percent / 100

    @property
    def claim(self) -> str | None:
        """Name of the claim with the data; None if they are in the image."""
        return self.data.claim if isinstance(self.data, VolumeData) else None

    def patience_seconds(self, nodes: int) -> int:
        return self.timeout_seconds or training_times.patience_seconds(nodes, self.epochs)


class LadderInputs(RunInputs):
    """Inputs of the cluster's rungs; whatever changes here makes them be climbed again."""

    called = "ladder"
    unshown = RunInputs.unshown | {"settle_seconds"}

    rung: int = Field(ge=CLUSTER_RUNGS[0], le=CLUSTER_RUNGS[-1])
    nodes: tuple[LadderNode, ...]
    """None where there are pools."""
    pools: tuple[LadderPool, ...] = ()
    """Of a managed cluster, whose nodes are found by their labels."""
    namespace: Name = LADDER_NAMESPACE
    network_image: LadderImage | None = None
    """Of rung 6, with Python 3; None: that of the training, which is then there for rung 9 already."""
    vector_add_image: LadderImage = VECTOR_ADD_IMAGE
    """Of rung 8."""
    rung_seconds: _Seconds = 900
    """How long rung 6 and rung 8 may take each, the pull of the image included, as in all rungs."""
    training: Training | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """Of what the GPUs depend on: driver, toolkit, device plugin, Kubernetes."""
    settle_seconds: _Seconds = 600
    """How long nodes may take to be Ready and to offer their GPUs."""
    timeout_seconds: _Seconds = 3600
    """All rungs together; each has its own bound beside it."""

    @property
    def ladder(self) -> Ladder:
        return GKE if self.pools else USERNETES

    @property
    def highest(self) -> CheckLevel:
        return CheckLevel(self.rung)

    @property
    def python_image(self) -> str:
        """That of rung 6."""
        return self.network_image or (self.training.image if self.training else NETWORK_IMAGE)

    @property
    def hosts_of_pods(self) -> tuple[LadderNode, ...]:
        return tuple(node for node in self.nodes if node.takes_pods)

    @property
    def gpus_per_pod(self) -> int:
        stated = self.training.gpus_per_pod if self.training else None
        return stated or min((node.gpus for node in self.hosts_of_pods), default=1)

    @property
    def pods(self) -> int:
        stated = self.training.pods if self.training else None
        return stated or len(self.hosts_of_pods)

    def problems(self) -> Iterator[str]:
        """Why it cannot be climbed."""
        if not self.pools:
            yield from _names(self.nodes)
        elif self.nodes:
            yield "pools: nodes are named too; leave one of both out"
        if self.highest is CheckLevel.TRAINING and self.training is None:
            yield "training: rung 9 is the training; describe it, or write proof.rung: 8"
        if self.nodes and not self.hosts_of_pods and self.highest >= CheckLevel.NETWORK:
            yield "nodes: none takes pods; write schedule-on-control-plane: true, or add a worker"
        room = sum(node.gpus // self.gpus_per_pod for node in self.hosts_of_pods)
        if self.training is not None and self.hosts_of_pods and self.pods > room:
            wanted = f"{self.pods} pods with {self.gpus_per_pod} GPUs each"
            yield f"training: {wanted} do not fit, {room} do"
