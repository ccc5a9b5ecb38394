"""The one program that pods of a proof really run here: matrices, multiplied on this machine's processor.

It is the file that the pod mounts, or has as a variable, with `--cpu`: what it prints is the real program's
output about a processor, and says so. Of a tenant's pod, for which nobody vouches, it is run only if it is
this checkout's own file, byte for byte. Other images of a proof (DCGM, NCCL, gpu-burn) need a GPU and print
nothing here.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.cluster import CONFIG_MAP
from lab.kubelet.kube import Kube

_TIMEOUT_SECONDS = 240.0
LABEL = "gpu-clusters.dev/proof"
"""Which proof a pod belongs to, as docs/rke2-proof.md has it."""
_PROOF, _PROGRAM = "matmul", "matmul.py"
_OWN = Path(__file__).resolve().parents[2] / "gpuclusters" / "proof" / "scripts" / _PROGRAM
_NOT_FOUND = 127
_KILLED = 137


@dataclass(frozen=True, slots=True)
class Output:
    lines: tuple[str, ...]
    exit_code: int


def is_proof(pod: Mapping[str, Any]) -> bool:
    """Whether the pod belongs to a proof that can be played."""
    return (pod["metadata"].get("labels") or {}).get(LABEL) == _PROOF


def brings_our_own(pod: Mapping[str, Any]) -> bool:
    """Whether the pod has this checkout's own program as a variable; such a one a tenant may have run too."""
    return _brought(pod) is not None


def _brought(pod: Mapping[str, Any]) -> str | None:
    own = _OWN.read_text(encoding="utf-8")
    values = (str(one.get("value", "")) for one in pod["spec"]["containers"][0].get("env") or ())
    # As Kubernetes reads it.
    return next((own for value in values if value.replace("$$", "$") == own), None)


async def run(kube: Kube, pod: Mapping[str, Any]) -> Output:
    """Run the program that the pod's first container names, with as many devices as it asks for."""
    container = pod["spec"]["containers"][0]
    # Python, the program, its arguments; one that comes as a variable has arguments alone.
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    text = _brought(pod)
    if text is not None:
        words = ["python3", _PROGRAM, *(container.get("args") or ())]
    else:
        text = await _mounted(kube, pod, _PROGRAM)
    if text is None or len(words) < 2:
        return Output((f"{_PROGRAM}: not found",), _NOT_FOUND)
    limits = (container.get("resources") or {}).get("limits") or {}
    devices = sum(int(amount) for name, amount in limits.items() if "/" in name)
    with tempfile.TemporaryDirectory(prefix="gpu-clusters-proof-") as folder:
        file = Path(folder) / _PROGRAM
        file.write_text(text, encoding="utf-8")
        return await _printed([str(file), *words[2:], "--cpu", "--devices", str(devices)])


async def _mounted(kube: Kube, pod: Mapping[str, Any], name: str) -> str | None:
    for volume in pod["spec"].get("volumes") or ():
        source = volume.get("configMap")
        if source:
            namespace = pod["metadata"]["namespace"]
            found = await kube.cluster.get(CONFIG_MAP, source["name"], namespace)
            text = ((found or {}).get("data") or {}).get(name)
            if text is not None:
                return str(text)
    return None


async def _printed(arguments: list[str]) -> Output:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-B",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": os.environ.get("PATH", "")},
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        output = f"did not end within {_TIMEOUT_SECONDS:g} s".encode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    code = _KILLED if process.returncode is None or process.returncode < 0 else process.returncode
    return Output(tuple(output.decode(errors="replace").splitlines()), code)
