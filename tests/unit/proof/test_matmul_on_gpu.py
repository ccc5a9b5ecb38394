"""The program of the proof on a real GPU; needs one, and PyTorch for its CUDA."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuclusters.compat import gpu_products
from gpuclusters.proof import logs
from gpuclusters.proof.checks import proven
from gpuclusters.proof.model import ProofNode

pytestmark = pytest.mark.gpu
PROGRAM = Path(__file__).parents[3] / "gpuclusters/proof/scripts" / "matmul.py"


def why_not() -> str:
    """What is missing here; empty if nothing is."""
    code = "import torch; assert torch.cuda.is_available(), 'torch sees no GPU'"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def test_matrices_are_right_and_repeatable_on_every_gpu_of_this_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if reason := why_not():
        pytest.skip(f"no GPU to calculate on: {reason}")
    done = subprocess.run(
        [sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    with capsys.disabled():
        print(json.dumps(found))
    assert found["cpu"] is False
    assert found["driver"]
    name = found["devices"][0]["name"]
    product = next((p for p in gpu_products.names() if logs.is_product(p, name)), None)
    node = ProofNode(
        name="here", resources={"nvidia.com/gpu": len(found["devices"])}, product=product
    )
    # Half of the data sheet: this is about the program; which floor is right is for a proof to say.
    checks = list(logs.matmul(node, done.stdout, floor_percent=50, simulated=False))
    assert proven(checks), [check.said for check in checks]
