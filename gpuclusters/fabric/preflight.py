"""Preflight: what the fabric manager's client says, and which cause that has. Only of a running cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gpuclusters.core.finding import Finding
from gpuclusters.domain.preflight_finding import Check, Look, wrong
from gpuclusters.fabric.answers import code_of_exit

_SHELL_NOT_FOUND = frozenset({126, 127})
_CAUSES = {
    -3: "fabric-mode",
    -6: "fabric-version",
    -8: "fabric-initialising",
    -9: "fabric-unreachable",
    -14: "fabric-initialising",
    -15: "fabric-initialising",
    -22: "fabric-initialising",
}


def fabric_manager_answers(look: Look) -> Iterator[Finding]:
    """`fmpm -l` gives a table with the configured modules in it."""
    fabric = look.facts.fabric
    if fabric is None:
        return
    if fabric.exit_status in _SHELL_NOT_FOUND:
        yield wrong("fabric-client-missing", "fmpm is not there", "fmpm")
    elif fabric.exit_status:
        code = code_of_exit(fabric.exit_status)
        said = " ".join(fabric.output.split())[:160] or "nothing"
        yield wrong(
            _CAUSES.get(code, "fabric-failed"),
            f"`fmpm -l` ended with {fabric.exit_status} ({said})",
            "a table of partitions",
        )
    else:
        yield from _table(look, fabric.output)


def _table(look: Look, output: str) -> Iterator[Finding]:
    try:
        document = json.loads(output)
        partitions = document["partitionInfo"]
        modules = {int(gpu["physicalId"]) for p in partitions for gpu in p["gpuInfo"]}
    except (ValueError, KeyError, TypeError):
        yield wrong("fabric-failed", "`fmpm -l` printed no table", "a table of partitions")
        return
    wanted = {int(module) for module in look.expects.gpus}
    if modules - wanted:
        yield wrong(
            "fabric-modules",
            f"physical ids {sorted(modules)}",
            f"the modules {sorted(wanted)}",
        )
    missing = sorted(wanted - modules)
    most = look.expects.partitions or len(partitions)
    if missing or len(partitions) < most:
        yield wrong(
            "fabric-partitions",
            f"{len(partitions)} partitions"
            + (f", none with the modules {', '.join(map(str, missing))}" if missing else ""),
            f"{most}" + (", every module in one" if missing else ""),
        )


CHECKS: tuple[Check, ...] = (fabric_manager_answers,)
