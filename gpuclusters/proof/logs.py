"""What the programs of the proofs printed, and what it shows: a check for each statement.

`dcgmi diag -j` is read in two shapes, as NVIDIA/DCGM's own tests have it: DCGM 4 (`DCGM Diagnostic`, results
by entity, a `test_summary`) and DCGM 3 (`DCGM GPU Diagnostic`, results by `gpu_id`).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from gpuclusters.compat import gpu_products
from gpuclusters.proof.checks import Check, CheckLevel, Ladder, Level, Outcome
from gpuclusters.proof.cluster import Ended
from gpuclusters.proof.model import LadderInputs, ProofNode, Training

Object = Mapping[str, Any]
_WORDS = 300


def json_line(log: str, proof: str) -> Object | None:
    """The last line of a log that is the JSON result of this proof; None if there is none."""
    for line in reversed(log.splitlines()):
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, Mapping) and found.get("proof") == proof:
                return found
    return None


def document(text: str) -> Object:
    """The JSON object in a text, whatever stands around it; empty if there is none."""
    with suppress(ValueError):
        found = json.loads(text[text.find("{") : text.rfind("}") + 1])
        return found if isinstance(found, Mapping) else {}
    return {}


def end(log: str) -> str:
    """Its last three lines as one, cut."""
    return " | ".join(line.strip() for line in log.splitlines()[-3:])[-_WORDS:]


# Matrices: right, repeatable, fast enough, on the GPU meant.

MATMUL_FORMAT = 1
MOST_ERROR = 2e-3
"""Relative error of a product in half precision: rounding its result alone gives about 3e-4."""
_MIG = re.compile(r"MIG (\d+)g\.")
_MAKE = re.compile(r"^(NVIDIA|Tesla) ")
"""Drivers of different ages write it or not."""
_USABLE = 0.85
"""Of its memory as it is sold, what a GPU offers at least: error correction and the driver take the rest."""


def matmul(
    node: ProofNode,
    log: str,
    *,
    floor_percent: int,
    floor_tflops: int | None = None,
    simulated: bool,
    joined: bool = False,
) -> Iterator[Check]:
    """A check for each GPU, and one for their number; `joined`: all NVLinks of each must be up."""
    found = json_line(log, "matmul")
    wrong = partial(_multiplies, Outcome.FAILED)
    if found is None or found.get("format") != MATMUL_FORMAT:
        last = end(log) or "(empty)"
        yield wrong(node.name, f"the job gave no result line; its log ends: {last}")
        return
    if found.get("cpu") is not False and not simulated:
        yield wrong(node.name, "it ran on the processor, not on a GPU")
        return
    devices, wanted = list(found.get("devices") or ()), sum(node.requests.values())
    outcome = Outcome.PASSED if len(devices) == wanted else Outcome.FAILED
    said = f"{len(devices)} of {wanted} devices in the pod"
    what = "gives a pod the devices that it asks for"
    yield Check(Level.L1, node.name, what, outcome, said)
    for position, device in enumerate(devices):
        subject = f"{node.name} {device.get('uuid', position)}"
        if "failed" in device:
            yield wrong(subject, str(device["failed"]))
        else:
            least = matmul_floor(node, str(device["name"]), floor_percent, floor_tflops)
            yield _device(subject, None if simulated else node, device, least, joined=joined)


def _device(
    subject: str, node: ProofNode | None, device: Object, least: float | None, *, joined: bool
) -> Check:
    """Without a node it is played: what it is, and how fast, is nobody's."""
    name, tflops = str(device["name"]), float(device["tflops"])
    error, differ = float(device["error"]), int(device["differ"])
    least = least if node else None
    known = f"floor {least:.1f}" if least is not None else "no floor is known"
    problems = {
        # Not a number is wrong too.
        f"wrong by more than {MOST_ERROR:g}": not error <= MOST_ERROR,
        "the same product came out differently twice": differ,
        "too slow": least is not None and tflops < least,
        "slowed down by its heat": device.get("too_hot"),
    }
    wrong = [problem for problem, there in problems.items() if there]
    if node and node.product is not None:
        wrong += _unlike(node.product, name, device, joined=joined)
    said = f"{name}: {tflops:.4g} TFLOPS ({known}), error {error:.1e}, {differ} elements differ"
    facts = {key: device[key] for key in _FACTS if device.get(key) is not None}
    said += "".join(f", {_FACTS[key].format(value)}" for key, value in facts.items())
    figures = {"tflops": tflops, "error": error} | ({"floor_tflops": least} if least else {})
    figures |= {key: float(value) for key, value in facts.items()}
    outcome = Outcome.FAILED if wrong else Outcome.PASSED
    return _multiplies(outcome, subject, "; ".join([*wrong, said]), **figures)


_FACTS = {
    "memory_mib": "{} MiB",
    "sms": "{} SMs",
    "nvlinks": "{} NVLinks up",
    "celsius": "{} °C while it works",
}
"""What a device says of itself beside its rate, as far as it does."""


def _unlike(product: str, name: str, device: Object, *, joined: bool) -> Iterator[str]:
    """How a device is not what its product is sold as."""
    memory = device.get("memory_mib")
    if not is_product(product, name, memory):
        yield f"the configuration says {product}"
    elif not _MIG.search(name):
        sold = gpu_products.product(product)
        whole = sold.memory_gib * 1024
        if memory is not None and not whole * _USABLE <= memory <= whole:
            yield f"{product} has {whole} MiB of memory"
        if sold.sms is not None and device.get("sms", sold.sms) != sold.sms:
            yield f"{product} has {sold.sms} SMs"
        if joined and sold.nvlinks is not None and device.get("nvlinks") != sold.nvlinks:
            yield f"{product} has {sold.nvlinks} NVLinks"


def _multiplies(outcome: Outcome, subject: str, said: str, **figures: float) -> Check:
    return Check(Level.L1, subject, "multiplies matrices", outcome, said, figures)


def matmul_floor(
    node: ProofNode, name: str, floor_percent: int, floor_tflops: int | None = None
) -> float | None:
    """Least TFLOPS of a device of this name; None if none is known or it is shared.

    A share of the data sheet's dense half precision rate; a MIG instance has as much of it as it has
    compute slices. `floor_tflops` is that of products whose data sheet is not in the table.
    """
    if node.product is None or node.shared:
        return None
    product, table = gpu_products.product(node.product), gpu_products.table()
    if product.bf16_tflops is None:
        return floor_tflops
    cut, part = _MIG.search(name), 1.0
    if cut and product.mig:
        part = int(cut[1]) / table.kinds[table.families[product.mig].kind].slices[0]
    return product.bf16_tflops * part * floor_percent / 100


def is_product(product: str, name: str, memory_mib: float | None = None) -> bool:
    """Whether a device that calls itself so is of a product; MIG instances add their profile to it.

    What one calls itself that is written by PCI id nobody knows: it is known by its memory.
    """
    one = gpu_products.product(product)
    if one.name is None:
        stated = one.memory_gib * 1024
        return memory_mib is None or stated * _USABLE <= memory_mib <= stated
    return _MAKE.sub("", one.name) in _MAKE.sub("", name)


# DCGM's diagnostics. A test that was skipped did not pass.

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_WORST_FIRST = (Outcome.FAILED, Outcome.NOT_TRIED, Outcome.PASSED)


def diagnostics(node: str, log: str, *, exit_code: int) -> Sequence[Check]:
    """A check for each test that DCGM lists."""
    known, of = document(log), partial(_diagnosed, node)
    found = next((known[root] for root in _ROOTS if root in known), None)
    if not isinstance(found, Mapping):
        said = f"exit code {exit_code}, no JSON; it said: {log.strip()[-_WORDS:] or '(nothing)'}"
        return [of(Outcome.FAILED, said)]
    checks = [
        _test(node, str(category.get("category", "?")), test)
        for category in found.get("test_categories") or ()
        for test in category.get("tests") or ()
    ]
    if not checks:
        return [of(Outcome.FAILED, "it lists no test")]
    if exit_code and all(check.outcome is Outcome.PASSED for check in checks):
        said = f"all tests pass, and the exit code is {exit_code}"
        checks.append(of(Outcome.FAILED, said))
    return checks


def _test(node: str, category: str, test: Object) -> Check:
    results, summary = list(test.get("results") or ()), test.get("test_summary") or {}
    told = [one.get("status") for one in (*results, *([summary] if "status" in summary else []))]
    # The worst of all; a test without results was not tried.
    outcome = next((o for o in _WORST_FIRST if o in map(_state, told)), Outcome.NOT_TRIED)
    bad = [_result(one) for one in results if _state(one.get("status")) is not Outcome.PASSED]
    said = "; ".join(bad) or f"{len(results)} results, {outcome}"
    return _diagnosed(node, outcome, said, f": {category}/{test.get('name', '?')}")


def _diagnosed(node: str, outcome: Outcome, said: str, test: str = "") -> Check:
    return Check(Level.L2, node, f"passes DCGM's diagnostics{test}", outcome, said)


def _state(status: object) -> Outcome:
    match str(status).casefold():
        case "pass":
            return Outcome.PASSED
        case "skip" | "notrun" | "not run":
            return Outcome.NOT_TRIED
    return Outcome.FAILED


def _result(one: Object) -> str:
    """What is said about an entity that did not pass."""
    entity = one.get("entity_id", one.get("gpu_id"))
    where = f"{one.get('entity_group', 'GPU')} {entity}: " if entity is not None else ""
    told = [w.get("warning", w) if isinstance(w, Mapping) else w for w in one.get("warnings") or ()]
    info = one.get("info") or ()
    told = [str(w) for w in (*told, *([info] if isinstance(info, str) else info))]
    return f"{where}{one.get('status')}" + (f" ({'; '.join(told)[:_WORDS]})" if told else "")


# A load that Prometheus must see, and the burn-in.

_VERDICT = re.compile(r"^\s*GPU (\d+): (OK|FAULTY)\b", re.MULTILINE)


def tensor_query(window_seconds: int) -> str:
    """How active each GPU's tensor pipe was at most, by the pod that exported or used it.

    A node cannot be asked for: which label names it differs between releases of the exporter.
    """
    metric = f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE[{window_seconds}s]"
    return f"max by (pod, exported_pod, gpu, UUID) (max_over_time({metric}))"


def active(answer: Object, node_of: Mapping[str, str]) -> Mapping[str, dict[str, float]]:
    """Activity by node and GPU, from an answer of Prometheus' query API.

    `node_of` knows the exporter's pods and the proof's.
    """
    found: dict[str, dict[str, float]] = {}
    for series in (answer.get("data") or {}).get("result") or ():
        labels, (_, value) = series["metric"], series["value"]
        node = node_of.get(labels.get("pod", "")) or node_of.get(labels.get("exported_pod", ""))
        if node is not None:
            gpu = str(labels.get("UUID") or labels.get("gpu"))
            known = found.setdefault(node, {})
            known[gpu] = max(known.get(gpu, 0.0), float(value))
    return found


def load(node: str, gpus: int, seen: Mapping[str, float], least_percent: int) -> Check:
    """Whether all GPUs of the node were busy enough, as Prometheus saw it."""
    low = {gpu: share for gpu, share in sorted(seen.items()) if share * 100 < least_percent}
    outcome, figures = Outcome.FAILED, {"least_tensor_active": min(seen.values())} if seen else {}
    if not seen:
        said = "Prometheus has no DCGM_FI_PROF_PIPE_TENSOR_ACTIVE of it"
    elif len(seen) < gpus:
        said = f"Prometheus knows {len(seen)} of its {gpus} GPUs"
    elif low:
        listed = ", ".join(f"{gpu} {share:.0%}" for gpu, share in low.items())
        said = f"below {least_percent} % of the time: {listed}"
    else:
        outcome, said = Outcome.PASSED, f"{len(seen)} GPUs, the least {min(seen.values()):.0%}"
    return Check(Level.L2, node, "is seen under load by Prometheus", outcome, said, figures)


def burn(node: str, gpus: int, log: str, *, exit_code: int) -> Iterator[Check]:
    """A check for each GPU that gpu-burn tells of, by its last word."""
    verdicts, what = dict(_VERDICT.findall(log)), "stands a burn-in"
    for gpu, verdict in verdicts.items():
        outcome = Outcome.PASSED if verdict == "OK" else Outcome.FAILED
        yield Check(Level.L3, f"{node} GPU {gpu}", what, outcome, verdict)
    if len(verdicts) != gpus or exit_code:
        said = f"it tells of {len(verdicts)} of {gpus} GPUs, exit code {exit_code}"
        yield Check(Level.L3, node, what, Outcome.FAILED, said)


# all_reduce_perf of nccl-tests: nothing wrong, and fast enough at the largest size.

_BOUNDS = re.compile(r"^# Out of bounds values\s*:\s*(\d+)\s+(\w+)", re.MULTILINE)
_COLUMNS = 13
"""size, count, type, redop, root, and twice time, algbw, busbw, #wrong."""


class Row(NamedTuple):
    """One size: the slower of out-of-place and in-place, and how many results were wrong in both."""

    bytes: int
    bus_gb_per_second: float
    wrong: int | None
    """None: nobody looked."""


def reduce_rows(log: str) -> Iterator[Row]:
    """The table; lines that mpirun prefixes are read too."""
    for line in log.splitlines():
        fields = re.sub(r"^\s*\[[^\]]*\]<stdout>:", "", line).split()
        if len(fields) != _COLUMNS or not fields[0].isdecimal():
            continue
        wrong = (fields[8], fields[12])
        try:
            speed = min(float(fields[7]), float(fields[11]))
            number = None if "N/A" in wrong else sum(int(float(text)) for text in wrong)
        except ValueError:
            continue
        yield Row(int(fields[0]), speed, number)


def reduce(node: str, log: str, *, floor_gb_per_second: int, exit_code: int) -> Check:
    """Whether the GPUs of a node reduce together."""
    what, outcome = "reduces over all GPUs of the node", Outcome.FAILED
    table, bounds = list(reduce_rows(log)), _BOUNDS.search(log)
    if not table or bounds is None or exit_code:
        said = f"it did not come to its end, exit code {exit_code}: {end(log) or '(no output)'}"
        return Check(Level.L4, node, what, outcome, said)
    largest = max(table, key=lambda row: row.bytes)
    speed, floor = largest.bus_gb_per_second, f"(floor {floor_gb_per_second})"
    said = f"{speed:.1f} GB/s of bus bandwidth at {largest.bytes} bytes {floor}"
    wrong = sum(bool(row.wrong) for row in table)
    if wrong or bounds[2] != "OK":
        said = f"wrong results at {wrong} sizes; {said}"
    elif speed < floor_gb_per_second:
        said = f"too slow: {said}"
    elif any(row.wrong is None for row in table):
        outcome, said = Outcome.NOT_TRIED, f"results were not compared (#wrong is N/A); {said}"
    else:
        outcome = Outcome.PASSED
    figures = {"bus_gb_per_second": speed, "bytes": float(largest.bytes)}
    return Check(Level.L4, node, what, outcome, said, figures)


# Rung 6: what a pod says about reaching those of the other nodes.


def reached(ladder: Ladder, answer: Object) -> Check:
    """What one pod shows about its node."""
    node, peers = str(answer.get("node", "?")), list(answer.get("peers") or ())
    wrong = [peer for peer in peers if "failed" in peer]
    if wrong:
        text = "; ".join(f"{peer['peer']}: {peer['failed']}" for peer in wrong)
        said = f"{len(wrong)} of {len(peers)} not reached: {text}"
        return ladder.failed(CheckLevel.NETWORK, node, said)
    if not peers:
        return ladder.passed(CheckLevel.NETWORK, node, "the only node: nobody to reach")
    slowest = max(float(peer.get("seconds", 0)) for peer in peers)
    others = ", ".join(sorted({str(peer.get("node", "?")) for peer in peers}))
    said = f"reaches {others} by name"
    return ladder.passed(CheckLevel.NETWORK, node, said, peers=len(peers), slowest_seconds=slowest)


# Rung 8: NVIDIA's vectorAdd.

PASSED_WORDS = "Test PASSED"


def vector_add(ladder: Ladder, node: str, ended: Ended) -> Check:
    """Whether the sample passed on a node."""
    if ended.exit_code == 0 and PASSED_WORDS in ended.log:
        return ladder.passed(CheckLevel.VECTOR_ADD, node, PASSED_WORDS)
    words = " ".join(ended.log.split())[-_WORDS:]
    said = f'it ended well and did not print "{PASSED_WORDS}": {words}'
    if ended.said:
        said = ": ".join(part for part in (ended.said, words) if part)
    return ladder.failed(CheckLevel.VECTOR_ADD, node, said, told=(ended.log, ended.said))


# Rung 9: the training.

BACKEND = "nccl"
"""What the ranks talk over where PyTorch finds GPUs; else it is gloo."""
_EPOCH = re.compile(r"^Train Epoch: (\d+) ", re.MULTILINE)


def training(
    inputs: LadderInputs, part: Training, ended: Ended, seconds: float | None = None
) -> Check:
    """Whether a training shows what it must; `seconds`: of the whole Job, if known."""
    said = json_line(ended.log, "training")
    if problems := list(_untrained(inputs, part, ended, said)):
        told = (ended.log, ended.said)
        return inputs.ladder.failed(CheckLevel.TRAINING, "cluster", "; ".join(problems), told=told)
    assert said is not None  # noqa: S101  (without it there is a problem)
    nodes, ranks, trained = said["nodes"], len(said["devices"]), float(said["trained_seconds"])
    whole = trained if seconds is None else seconds
    return inputs.ladder.passed(
        CheckLevel.TRAINING,
        "cluster",
        f"{nodes} nodes with {ranks} ranks ({', '.join(sorted({*said['devices']}))}) reach an accuracy of "
        f"{said['accuracy']:.4f} (floor {part.accuracy_floor:g}) in {whole:.0f} s, {trained:g} s of it "
        "training",
        nodes=nodes,
        gpus=ranks,
        epochs=part.epochs,
        batch_size=part.batch_size,
        accuracy=said["accuracy"],
        seconds=whole,
        trained_seconds=trained,
        simulated=int(said.get("simulated", False)),
    )


def _untrained(
    inputs: LadderInputs, part: Training, ended: Ended, said: Object | None
) -> Iterator[str]:
    words = " ".join(ended.log.split())[-_WORDS:] or "it printed nothing"
    if ended.exit_code is None:
        # The last one that began.
        epoch = max(map(int, _EPOCH.findall(ended.log)), default=0)
        at = f" in epoch {epoch} of {part.epochs}" if epoch else ""
        yield f"it did not end{at}: {ended.said}"
    elif ended.exit_code:
        yield f"{ended.pod or 'a pod'} ended with {ended.said}: {words}"
    elif said is None:
        yield f"it gave no result line: {words}"
    else:
        if not inputs.simulated and said.get("simulated"):
            yield "it was simulated: nothing was calculated on a GPU"
        elif not inputs.simulated and said["backend"] != BACKEND:
            yield f"the ranks talked over {said['backend']}, wanted {BACKEND}"
        ranks, came = inputs.pods * inputs.gpus_per_pod, len(said["devices"])
        if (said["nodes"], came) != (inputs.pods, ranks):
            there = f"{said['nodes']} nodes and {came} ranks came to the barrier"
            yield f"{there}, wanted {inputs.pods} and {ranks}"
        if said["accuracy"] < part.accuracy_floor:
            yield f"accuracy {said['accuracy']:.4f} is below the floor {part.accuracy_floor:g}"
