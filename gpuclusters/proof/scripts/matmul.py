"""Multiplies matrices on every GPU that this process may use, and says how fast and how right.

One line of JSON on standard output; what is good enough is decided by whoever reads it. Each device
gets a process of its own: CUDA shows one MIG instance to a process, and a GPU that hangs takes nobody
with it. Rows of the product are compared with a reference in double precision, and the last product
with the first one, bit by bit.

    python3 matmul.py [--size 8192] [--seconds 5] [--rows 32]
    python3 matmul.py --cpu --devices 2    # on this machine's processor, for a lab; needs nothing but Python
"""

import argparse
import array
import json
import os
import random
import re
import subprocess
import sys
import time
from itertools import chain

FORMAT = 1
DEVICE_TIMEOUT_SECONDS = 600
CPU_SIZE = 48
FLOPS_PER_ELEMENT = 2


def devices_of(listing):
    """Uuids in the output of `nvidia-smi -L`: MIG instances instead of the GPU that holds them."""
    found = []
    for line in listing.splitlines():
        match = re.search(r"\(UUID: ((GPU|MIG)-[^)]+)\)", line)
        if not match:
            continue
        if match[2] == "MIG" and found and found[-1][1] == "GPU":
            found.pop()
        found.append((match[1], match[2]))
    return [uuid for uuid, _ in found]


def visible():
    """Devices of this container; by number where nvidia-smi is missing."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        pass
    else:
        return devices_of(done.stdout)
    try:
        import torch
    except ImportError:
        return []
    return [str(number) for number in range(torch.cuda.device_count())]


def told(*words):
    """What nvidia-smi prints; empty where it is missing or knows no such device, as with a MIG instance."""
    command = ["nvidia-smi", *words]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def board(device):
    """Heat of a GPU while it works, whether it runs slower because of it, and how many NVLinks are up."""
    asked = "temperature.gpu," + ",".join(
        f"clocks_throttle_reasons.{kind}_thermal_slowdown" for kind in ("hw", "sw")
    )
    form = "--format=csv,noheader,nounits"
    heat, *slow = told(f"--query-gpu={asked}", form, f"--id={device}").strip().split(", ")
    links = told("nvlink", "--status", "-i", device)
    found = {"celsius": int(heat), "too_hot": "Active" in slow} if heat.isdigit() else {}
    up = len(re.findall(r"Link \d+: [\d.]+ GB/s", links))
    return {**found, "nvlinks": up} if "Link" in links else found


def on_gpu(options):
    """The product of half precision matrices on the only device of this process."""
    import torch

    torch.set_num_threads(options.threads)
    size, kind = options.size, torch.float16
    device = torch.device("cuda:0")
    torch.manual_seed(1)
    left = (torch.rand(size, size, device=device) * 2 - 1).to(kind)
    right = (torch.rand(size, size, device=device) * 2 - 1).to(kind)
    first = left @ right
    for _ in range(3):
        last = left @ right
    torch.cuda.synchronize()
    repeats, started = 0, time.monotonic()
    while time.monotonic() - started < options.seconds:
        for _ in range(10):
            last = left @ right
        repeats += 10
        torch.cuda.synchronize()
    seconds = time.monotonic() - started
    # As much again as a fifth is under way while its heat is read.
    for _ in range(repeats // 5):
        last = left @ right
    facts = board(options.only)
    step = max(1, size // options.rows)
    # Rows from all over the matrix; all of them in double precision would take the processor minutes.
    chosen = left[::step].double().cpu()
    reference = chosen @ right.double().cpu()
    error = (first[::step].double().cpu() - reference).norm() / reference.norm()
    properties = torch.cuda.get_device_properties(0)
    return {
        **facts,
        "name": torch.cuda.get_device_name(0),
        "memory_mib": properties.total_memory >> 20,
        "sms": properties.multi_processor_count,
        "dtype": "float16",
        "size": size,
        "repeats": repeats,
        "seconds": seconds,
        "tflops": FLOPS_PER_ELEMENT * size**3 * repeats / seconds / 1e12,
        "error": float(error),
        "differ": int((first != last).sum()),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
    }


def on_cpu(options):
    """The same in plain Python: the product is rounded to single precision, the reference is not."""
    size = min(options.size, CPU_SIZE)
    numbers = random.Random(1)  # noqa: S311

    def matrix():
        return [
            array.array("f", (numbers.uniform(-1, 1) for _ in range(size))) for _ in range(size)
        ]

    def product(kind, rows, columns):
        return [
            array.array(kind, (sum(map(float.__mul__, row, column)) for column in columns))
            for row in rows
        ]

    left, columns = matrix(), [array.array("f", column) for column in zip(*matrix(), strict=True)]
    started = time.monotonic()
    first, last = product("f", left, columns), product("f", left, columns)
    seconds = time.monotonic() - started
    reference = product("d", left, columns)
    wrong = sum((a - b) ** 2 for a, b in zip(chain(*first), chain(*reference), strict=True))
    whole = sum(b * b for b in chain(*reference))
    return {
        "name": "cpu",
        "dtype": "float32",
        "size": size,
        "repeats": 2,
        "seconds": seconds,
        "tflops": FLOPS_PER_ELEMENT * size**3 * 2 / max(seconds, 1e-9) / 1e12,
        "error": (wrong / whole) ** 0.5,
        "differ": sum(a != b for a, b in zip(chain(*first), chain(*last), strict=True)),
    }


def children(options, names):
    """One process per device, all at once: that is how a job uses them."""
    cpus = os.cpu_count() or 1
    same = ["--size", str(options.size), "--seconds", str(options.seconds)]
    same += ["--rows", str(options.rows), "--threads", str(max(1, cpus // max(1, len(names))))]
    started = []
    for name in names:
        command = [sys.executable, __file__, "--only", name, *same, *(["--cpu"] * options.cpu)]
        # The device is chosen before CUDA is loaded: afterwards it is too late.
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": name}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append((name, process))
    deadline = time.monotonic() + options.seconds + DEVICE_TIMEOUT_SECONDS
    return [result(name, process, deadline) for name, process in started]


def result(name, process, deadline):
    """What a device's process said, or why it said nothing."""
    try:
        output, errors = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"uuid": name, "failed": f"gave no result within {DEVICE_TIMEOUT_SECONDS} s"}
    if process.returncode != 0:
        words = [line for line in errors.splitlines() if line.strip()][-1:]
        return {"uuid": name, "failed": " ".join(words) or f"exit status {process.returncode}"}
    return {"uuid": name, **json.loads(output)}


def driver():
    """Version of the driver that this container sees; None where there is none."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:  # noqa: PTH123
            found = re.search(r"  (\d+\.\d+(?:\.\d+)?)  ", file.read())
    except OSError:
        return None
    return found[1] if found else None


def main():
    """Parent: all devices. Child (`--only`): one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rows", type=int, default=32, help="how many rows are compared")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--cpu", action="store_true", help="without any GPU; proves nothing about GPUs"
    )
    parser.add_argument("--devices", type=int, default=1, help="with --cpu: how many are played")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(on_cpu(options) if options.cpu else on_gpu(options)))
        return 0
    names = [f"cpu-{n}" for n in range(options.devices)] if options.cpu else visible()
    found = children(options, names)
    line = {"proof": "matmul", "format": FORMAT, "cpu": options.cpu, "driver": driver()}
    print(json.dumps({**line, "devices": found}))
    return 1 if not found or any("failed" in one for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
