"""Rows 20 and 21 of the known failures: a VM with GPUs does not start, or finds none inside."""

from __future__ import annotations

import pytest

from gpuclusters.domain import guest_troubles

SAID_BY_EVENTS = {
    "boot-too-slow": (
        "Failed to create pod sandbox: rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        "Error: failed to create containerd task: CreateContainer failed: context deadline exceeded",
    ),
    "cdi-device-unknown": (
        "Error: CDI device injection failed: unresolvable CDI devices nvidia.com/pgpu=1",
    ),
    "cdi-timeout-in-guest": (
        'failed to inject devices after CDI timeout of 100 seconds: device "nvidia.com/gpu=0"',
    ),
    "pod-resources-off": ("cold plug: rpc error: PodResources API Get method disabled",),
    "annotation-refused": (
        "annotation io.katacontainers.config.hypervisor.default_vcpus is not enabled",
    ),
    "no-node-for-runtime-class": (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: none",
    ),
    "no-gpu-left": ("0/2 nodes are available: 2 Insufficient nvidia.com/pgpu.",),
    "group-not-viable": ("vfio 0000:86:00.0: group 20 is not viable",),
}
SAID_IN_GUESTS = {
    "fabric-not-ready": (
        "RuntimeError: CUDA error: system not yet initialized",
        "cuInit failed: 802",
        "CUDA_ERROR_SYSTEM_NOT_READY",
    ),
    "no-device-initialized": ("cuInit(0) returned 3", "CUDA error: initialization error"),
    "fabric-in-progress": ("    Fabric\n        State : In Progress", "Fabric State : In Progress"),
    "no-nvlink": ("hgx-01:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct",),
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in SAID_BY_EVENTS.items() for text in texts]
)
def test_row_20_an_event_is_told_with_its_cause(name: str, text: str) -> None:
    found = guest_troubles.of_event(text)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in SAID_IN_GUESTS.items() for text in texts]
)
def test_row_21_what_a_guest_says_is_told_with_its_cause(name: str, text: str) -> None:
    found = guest_troubles.of_guest(text)
    assert found is not None
    assert found.name == name


def test_every_cause_has_a_case() -> None:
    assert {t.name for t in guest_troubles.EVENTS} == set(SAID_BY_EVENTS)
    assert {t.name for t in guest_troubles.GUEST} == set(SAID_IN_GUESTS)


@pytest.mark.parametrize(
    "text",
    [
        "Successfully pulled image in 8.02s",
        "epoch 802 loss 0.3",
        "Back-off restarting failed container",
        "Readiness probe failed: HTTP probe failed with statuscode: 503",
        "0/2 nodes are available: 2 node(s) had untolerated taint",
    ],
)
def test_what_has_another_cause_is_left_to_itself(text: str) -> None:
    assert guest_troubles.of_event(text) is None
    assert guest_troubles.of_guest(text) is None
