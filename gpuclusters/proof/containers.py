"""The proof as a tenant's containers: one of each size, by the public API, one after the other.

Nothing but what a tenant may do is done. The program comes as a variable, which may be longer than an
argument; what is asked for has a name before it is made, so that it is removed even if the answer was lost.
"""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any

from gpuclusters.container_api.client import Answer, ContainerApi
from gpuclusters.container_api.container import State, identifier
from gpuclusters.container_api.request import GPU_COUNTS
from gpuclusters.core.converge import Clock, Reporter, poll
from gpuclusters.core.errors import AdapterError, UnreachableError
from gpuclusters.core.finding import Finding, Refused, refused
from gpuclusters.core.finding import Level as FindingLevel
from gpuclusters.proof import logs
from gpuclusters.proof.checks import Check, Level, Outcome, ProofResult
from gpuclusters.proof.cluster import running
from gpuclusters.proof.model import WHOLE, ContainerProof, Matmul, ProofNode
from gpuclusters.proof.run import SIMULATED

PROGRAM = Matmul.program
POLL_SECONDS = 2.0
_END_SECONDS = 120.0
"""A program has 30 seconds to end by itself."""
_PATIENCE = 30
"""Looks in a row at an image that does not come before no more are taken."""
_LABEL = ("gpu-clusters-proof", "container")
_VARIABLE = "GPU_CLUSTERS_PROOF"
_START = (
    "import os, sys, tempfile\n"
    f"path = os.path.join(tempfile.mkdtemp(), '{PROGRAM}')\n"
    "with open(path, 'w', encoding='utf-8') as file:\n"
    f"    file.write(os.environ['{_VARIABLE}'])\n"
    "os.execvp('python3', ['python3', path, *sys.argv[1:]])\n"
)
_ENDED = (State.SUCCEEDED, State.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """A tenant with its token, at the public API."""

    api: ContainerApi
    tenant: str
    token: str

    def ask(self, path: str, method: str = "GET", **options: Any) -> Answer:
        return self.api.call(method, f"/v1/{path}", self.token, **options)

    def known(self, path: str) -> Mapping[str, Any]:
        """What must be answered before anything is tried."""
        answer = self.ask(path)
        if answer.status != HTTPStatus.OK or not isinstance(answer.body, Mapping):
            raise self.refusal(answer.said)
        return answer.body

    def refusal(self, said: str) -> Refused:
        problem = f"the proof as {self.tenant} cannot be run: {said}"
        return refused(self.api.target, "proof.not-served", problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """What is asked for, of whom, and by which clock."""

    customer: Customer
    wanted: ContainerProof
    program: str
    """Its text."""
    product: str | None
    """As `gpu_products` writes it; None leaves it without a floor."""
    simulated: bool
    clock: Clock
    reporter: Reporter

    def run(self) -> ProofResult:
        """Every size that layouts and tenancy allow, the largest first; `Refused` if none can be tried."""
        tenancy = self.customer.known("tenancy")
        if not tenancy["ready"]:
            raise self.customer.refusal(f"its tenancy is not ready ({tenancy['reason']})")
        self._clear()
        left_out = dict(self._impossible(tenancy["gpuSizes"]))
        remarks = [
            f"A container of {n} GPUs is not possible: {why}." for n, why in left_out.items()
        ]
        sizes = [size for size in reversed(GPU_COUNTS) if size not in left_out]
        if not sizes:
            raise self.customer.refusal(" ".join(remarks))
        checks = [check for size in sizes for check in self._size(size)]
        return ProofResult(tuple(checks), (*([SIMULATED] if self.simulated else []), *remarks), {})

    def _impossible(self, allowed: Sequence[int]) -> Iterator[tuple[int, str]]:
        offered = {one["gpus"] for one in self.customer.known("capacity")["sizes"]}
        for size in GPU_COUNTS:
            if size not in offered:
                yield size, f"the machines are cut into {_listed(offered)}"
            elif size not in allowed:
                yield size, f"the tenancy of {self.customer.tenant} allows {_listed(allowed)}"

    def _clear(self) -> None:
        """What a run left that was killed."""
        path = "containers?limit=500"
        for one in self.customer.known(path)["items"]:
            if _LABEL in one["labels"].items():
                self._remove(one["id"])

    def _size(self, size: int) -> Iterator[Check]:
        key = f"proof-{secrets.token_hex(8)}"
        container, of = identifier(self.customer.tenant, key), partial(_check, size)
        left: Sequence[Finding] = ()
        try:
            yield from self._shown(size, key, container)
        finally:
            # A failure of ours is told, not what it kept from being removed.
            with suppress(AdapterError):
                left = self._remove(container)
        if left:
            yield of("is removed again", Outcome.FAILED, "; ".join(one.problem for one in left))

    def _shown(self, size: int, key: str, container: str) -> Iterator[Check]:
        of = partial(_check, size)
        capacity = self.customer.known("capacity")
        free = next(one["free"] for one in capacity["sizes"] if one["gpus"] == size)
        if not free and not capacity["gpus"]["recycling"]:
            yield of("gets its GPUs", Outcome.NOT_TRIED, f"no partition of {size} GPUs is free")
            return
        if said := self._ask_for(size, key):
            yield of("gets its GPUs", Outcome.NOT_TRIED, said)
            return
        seen, late = self._wait(size, container)
        if late:
            waited = "; ".join(one.problem for one in late)
            yield of("ends by itself", Outcome.FAILED, f"{waited}; the time for it is over")
            return
        log = self.customer.ask(f"containers/{container}/logs").body
        # A log that is one line of JSON was read as such.
        text = log if isinstance(log, str) else json.dumps(log)
        if seen["state"] != State.SUCCEEDED and logs.json_line(text, "matmul") is None:
            words = (
                seen["state"],
                seen["reason"],
                seen["message"],
                f"exit code {seen['exitCode']}",
            )
            told = ", ".join(str(word) for word in words if word)
            said = f"{told}; its log ends: {logs.end(text) or '(empty)'}"
            yield of("ends by itself", Outcome.FAILED, said)
            return
        seconds = _seconds(seen["createdAt"], seen["startedAt"])
        said = f"it ran {seconds:.0f} s after it was asked for"
        yield of("starts", Outcome.PASSED, said, start_seconds=seconds)
        node = ProofNode(name=_name(size), resources={WHOLE: size}, product=self.product)
        percent, several = self.wanted.floor_percent, size > 1
        # A partition of one GPU has no NVLink.
        judged = partial(logs.matmul, simulated=self.simulated, joined=several)
        yield from judged(node, text, floor_percent=percent)

    def _ask_for(self, size: int, key: str) -> str:
        """Ask for the container; what is in the way of it now, empty if it was made."""
        body = {
            "name": f"proof-{size}",
            "image": self.wanted.image,
            "gpus": size,
            "command": ["python3", "-c", _START],
            "args": list(Matmul.arguments),
            "env": {_VARIABLE: self.program},
            "labels": dict([_LABEL]),
        }
        answer = Answer(0, None)

        def look() -> Sequence[Finding]:
            nonlocal answer
            answer = self.customer.ask("containers", "POST", body=body, key=key)
            retry = answer.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
            return [running(f"{_name(size)}: {answer.said}")] if retry else ()

        if late := self._poll(look):
            return "; ".join(one.problem for one in late)
        if answer.status == HTTPStatus.CREATED:
            return ""
        if answer.status == HTTPStatus.CONFLICT:
            return answer.said
        raise self.customer.refusal(answer.said)

    def _wait(self, size: int, container: str) -> tuple[Mapping[str, Any], Sequence[Finding]]:
        seen: Mapping[str, Any] = {}
        unpulled = 0

        def look() -> Sequence[Finding]:
            nonlocal seen, unpulled
            answer = self.customer.ask(f"containers/{container}")
            if answer.status == HTTPStatus.NOT_FOUND:
                gone = f"{_name(size)}: somebody deleted it"
                return [Finding("proof.running", gone, level=FindingLevel.BLOCK)]
            if answer.status != HTTPStatus.OK:
                return [running(f"{_name(size)}: {answer.said}")]
            seen = answer.body
            if seen["state"] in _ENDED:
                return ()
            unpulled = unpulled + 1 if seen["reason"] == "ImageNotPulled" else 0
            words = ": ".join(str(seen[key]) for key in ("state", "message") if seen[key])
            level = FindingLevel.BLOCK if unpulled > _PATIENCE else FindingLevel.REPAIR
            return [Finding("proof.running", f"{_name(size)}: {words}", level=level)]

        late = self._poll(look)
        if unpulled > _PATIENCE:
            raise self.customer.refusal(seen["message"])
        return seen, late

    def _remove(self, container: str) -> Sequence[Finding]:
        """End it and wait until its quota is free again; what is still there when the time is over."""

        def look() -> Sequence[Finding]:
            answer = self.customer.ask(f"containers/{container}", "DELETE")
            gone = answer.status == HTTPStatus.NO_CONTENT
            return () if gone else [running(f"the end of {container}: {answer.said}")]

        return self._poll(look, _END_SECONDS)

    def _poll(
        self, look: Callable[[], Sequence[Finding]], timeout_seconds: float | None = None
    ) -> Sequence[Finding]:
        def patient() -> Sequence[Finding]:
            try:
                return look()
            except UnreachableError as error:
                return [running(f"an answer of the API ({error.problem})")]

        target, seconds = self.customer.api.target, timeout_seconds or self.wanted.timeout_seconds
        return poll(patient, target, seconds, POLL_SECONDS, self.clock, self.reporter)


def _name(size: int) -> str:
    return f"size-{size}"


def _check(size: int, what: str, outcome: Outcome, said: str, **figures: float) -> Check:
    return Check(Level.L1, _name(size), what, outcome, said, figures)


def _listed(sizes: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(sizes))) or "nothing"


def _seconds(since: str, until: str) -> float:
    first, second = (datetime.fromisoformat(text) for text in (since, until))
    return (second - first).total_seconds()
