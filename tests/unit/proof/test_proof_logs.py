"""What programs of a proof print, and what it is taken for."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.compat import gpu_products
from gpuclusters.proof import logs
from gpuclusters.proof.checks import Check, Outcome, proven
from gpuclusters.proof.model import ProofNode
from tests.fixtures.tables import beside
from tests.unit.proof.proof_world import A100, HEAD, ROW, TAIL, diag, line, product

PROGRAM = Path(__file__).parents[3] / "gpuclusters/proof/scripts" / "matmul.py"
CASES = beside(__file__, "proof_logs.yaml")


def node(**changes: Any) -> ProofNode:
    given = {"name": "n0", "resources": {"nvidia.com/gpu": 2}, "product": product(A100)}
    return ProofNode.model_validate(given | changes)


def outcomes(checks: Any) -> list[str]:
    return [check.outcome.value for check in checks]


def judged(log: str, target: ProofNode | None = None, **changes: Any) -> list[Check]:
    settings = {"floor_percent": 70, "simulated": False} | changes
    return list(logs.matmul(target or node(), log, **settings))


def test_gpus_that_are_right_and_fast_enough_pass() -> None:
    checks = judged(line({}, {}))
    assert proven(checks)
    assert [check.subject for check in checks] == ["n0", "n0 GPU-0", "n0 GPU-1"]
    assert checks[1].said == (
        "NVIDIA A100-SXM4-80GB: 260 TFLOPS (floor 218.4), error 2.8e-04, 0 elements differ"
    )
    assert checks[1].figures == {"tflops": 260.0, "error": 2.8e-4, "floor_tflops": 218.4}


def reduced(*rows: list[Any], bad: int = 0, word: str = "OK") -> str:
    table = "".join(
        ROW.format(size=size, count=size // 4, bw=bw, wrong=wrong) for size, bw, wrong in rows
    )
    return HEAD + table + TAIL.format(bad=bad, word=word)


def taken(program: str, case: dict[str, Any]) -> list[Check]:
    """What the log of a case is taken for."""
    code = case.get("code", 0)
    if program == "matmul":
        log = case.get("log", line(*case.get("devices", ()), **case.get("changes", {})))
        return judged(log)
    if program == "diagnostics":
        log = case.get("log", diag(*case.get("tests", ())))
        return list(logs.diagnostics("n0", log, exit_code=code))
    log = case.get("log", reduced(*case.get("rows", ()), **case.get("end", {})))
    return [logs.reduce("n0", log, floor_gb_per_second=300, exit_code=code)]


@pytest.mark.parametrize(
    ("program", "case"),
    [
        pytest.param(program, case, id=f"{program}-{case['id']}")
        for program, cases in CASES.items()
        for case in cases
    ],
)
def test_a_log_is_taken_for_what_it_shows(program: str, case: dict[str, Any]) -> None:
    checks = taken(program, case)
    assert outcomes(checks) == case["outcomes"]
    assert proven(checks) is (set(case["outcomes"]) == {"passed"})
    first, last = checks[0], checks[-1]
    assert first.said.startswith(case.get("first", ""))
    assert last.said.startswith(case.get("said", ""))
    assert last.subject == case.get("subject", last.subject)
    assert last.figures.items() >= case.get("figures", {}).items()
    assert [check.what for check in checks] == case.get("what", [check.what for check in checks])


def test_a_floor_follows_the_part_of_the_gpu() -> None:
    name = f"{A100} MIG 1g.10gb"
    cut = node(mig=True, resources={"nvidia.com/mig-1g.10gb": 1})
    assert logs.matmul_floor(cut, name, 70) == pytest.approx(312 / 7 * 0.7)
    assert proven(judged(line({"name": name, "tflops": 32.0}), cut))
    shared = node(shared=True, resources={"nvidia.com/gpu.shared": 8})
    assert logs.matmul_floor(shared, A100, 70) is None
    assert proven(judged(line({"tflops": 3.0}), shared)), "one is asked for, and others share it"
    assert logs.matmul_floor(node(product=None), A100, 70) is None


def test_a_gpu_that_is_not_in_the_table_is_known_by_its_memory_and_has_a_floor_of_its_own() -> None:
    other = node(resources={"nvidia.com/gpu": 1}, product="10de:2503-12gb")
    there = {"name": "NVIDIA GeForce RTX 3060", "tflops": 25.0, "memory_mib": 11_909}
    (_, right) = judged(line(there), other, floor_tflops=20)
    assert right.outcome is Outcome.PASSED
    assert right.figures["floor_tflops"] == 20
    for fault, said in (({"tflops": 19.0}, "too slow"), ({"memory_mib": 7_973}, "the config")):
        (_, wrong) = judged(line(there | fault), other, floor_tflops=20)
        assert wrong.outcome is Outcome.FAILED
        assert wrong.said.startswith(said)


def program(*words: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, **options
    )


def test_the_program_says_on_a_processor_what_the_judge_reads() -> None:
    done = program(PROGRAM, "--cpu", "--devices", "2", "--size", "16")
    assert done.returncode == 0
    assert proven(judged(done.stdout, simulated=True))
    assert not proven(judged(done.stdout)), "a processor is no GPU"
    found = logs.json_line(done.stdout, "matmul")
    assert found is not None
    assert found["devices"][0]["error"] < 1e-6


def test_the_program_without_gpu_and_without_torch_says_so_and_fails(tmp_path: Path) -> None:
    done = program(PROGRAM, env={"PATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (1, "")
    assert judged(done.stdout)[0].said == "0 of 2 devices in the pod"


def test_the_program_takes_mig_instances_for_the_gpu_that_holds_them() -> None:
    listing = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aa)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-b)\n"
        "  MIG 3g.40gb     Device  1: (UUID: MIG-c)\n"
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-dd)\n"
    )
    devices_of = runpy.run_path(str(PROGRAM))["devices_of"]
    assert [*devices_of(listing)] == ["MIG-b", "MIG-c", "GPU-dd"]


def answer(*series: tuple[dict[str, str], str]) -> dict[str, Any]:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def test_a_load_is_found_by_the_pod_that_exported_it_or_by_the_one_that_caused_it() -> None:
    node_of = {"exporter-a": "n0", "proof-load-n1": "n1"}
    seen = logs.active(
        answer(
            ({"pod": "exporter-a", "UUID": "GPU-0"}, "0.9"),
            ({"pod": "exporter-a", "exported_pod": "proof-load-n0", "UUID": "GPU-0"}, "0.4"),
            ({"pod": "proof-load-n1", "gpu": "1"}, "0.2"),
            ({"pod": "somebody", "UUID": "GPU-9"}, "1"),
        ),
        node_of,
    )
    assert seen == {"n0": {"GPU-0": 0.9}, "n1": {"1": 0.2}}
    assert proven([logs.load("n0", 1, seen["n0"], 50)])
    low = logs.load("n1", 1, seen["n1"], 50)
    assert low.said == "below 50 % of the time: 1 20%"
    few = logs.load("n0", 8, seen["n0"], 50)
    assert few.said == "Prometheus knows 1 of its 8 GPUs"
    none = logs.load("n2", 8, {}, 50)
    assert none.said.startswith("Prometheus has no DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")
    assert outcomes([low, few, none]) == ["failed"] * 3


def test_a_burn_in_is_passed_by_every_gpu_or_not_at_all() -> None:
    log = "100.0%  proc'd: 10  errors: 0\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: {}\n"
    assert proven(list(logs.burn("n0", 2, log.format("OK"), exit_code=0)))
    checks = list(logs.burn("n0", 2, log.format("FAULTY"), exit_code=0))
    assert outcomes(checks) == ["passed", "failed"]
    assert outcomes(list(logs.burn("n0", 3, log.format("OK"), exit_code=0)))[-1] == "failed"
    assert not proven(list(logs.burn("n0", 2, "", exit_code=0)))


def test_lines_under_mpirun_are_read() -> None:
    log = "".join(
        f"[1,0]<stdout>:{line}\n" if line[:1] == " " else f"{line}\n"
        for line in reduced([8589934592, 376.4, "0"]).splitlines()
    )
    assert outcomes(taken("collective", {"log": log})) == ["passed"]


@pytest.mark.gpu
def test_matrices_are_right_and_repeatable_on_every_gpu_of_this_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    there = program("-c", "import torch; assert torch.cuda.is_available(), 'torch sees no GPU'")
    if there.returncode:
        pytest.skip(f"no GPU to calculate on: {there.stderr.strip().splitlines()[-1]}")
    done = program(PROGRAM, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    with capsys.disabled():
        print(json.dumps(found))
    assert found["cpu"] is False
    assert found["driver"]
    devices = found["devices"]
    known = [one for one in gpu_products.names() if logs.is_product(one, devices[0]["name"])]
    here = node(resources={"nvidia.com/gpu": len(devices)}, product=known[0] if known else None)
    # Half of the data sheet: this is about the program; which floor is right is for a proof to say.
    checks = judged(done.stdout, here, floor_percent=50)
    assert proven(checks), [check.said for check in checks]
