"""Rungs 1 to 4: what the script on a host prints, and what it shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuclusters.domain import known_errors
from gpuclusters.proof.checks import Check, Outcome
from gpuclusters.proof.ladder import CheckLevel, failed, passed

_UUID = re.compile(r"\(UUID: (GPU-[0-9a-f-]+)\)")
_NAME = re.compile(r"nvidia\.com/gpu=(\S+)")
_MARK = re.compile(r"^== (\w[\w-]*) (\d+)$")
_KIND = "nvidia.com/gpu="
_SAID = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command printed, and its exit status."""

    status: int
    text: str

    @property
    def words(self) -> str:
        """For a message: its last words on one line."""
        flat = " ".join(self.text.split())
        return flat[-_SAID:] or f"it said nothing, exit status {self.status}"


@dataclass(frozen=True, slots=True)
class HostAnswers:
    """All that a host said."""

    answers: Mapping[str, Answer] = field(default_factory=dict)
    """By section of the script."""

    def of(self, section: str) -> Answer:
        """One section; what was not said counts as failed."""
        return self.answers.get(section, Answer(-1, "the script did not come so far"))


def parse(output: str) -> HostAnswers:
    """Sections of the script's output: a line `== NAME STATUS`, then what the command printed."""
    found: dict[str, Answer] = {}
    name, status, lines = "", 0, list[str]()
    for line in [*output.splitlines(), "== end 0"]:
        mark = _MARK.match(line)
        if mark is None:
            lines.append(line)
            continue
        if name:
            found[name] = Answer(status, "\n".join(lines))
        name, status, lines = mark[1], int(mark[2]), []
    return HostAnswers(found)


def gpus_of(text: str) -> tuple[str, ...]:
    """UUIDs in the output of `nvidia-smi -L`, sorted."""
    return tuple(sorted(_UUID.findall(text)))


def judge(
    host: str, gpus: int, said: HostAnswers, highest: CheckLevel = CheckLevel.NODE_CDI
) -> list[Check]:
    """The rungs of one host, up to the first that does not hold.

    Args:
        host: its name.
        gpus: how many it must have.
        said: what the script printed.
        highest: the last rung that is asked for.
    """
    checks: list[Check] = []
    for rung, look in _LOOKS.items():
        if rung > highest:
            break
        checks += look(host, gpus, said)
        if checks[-1].outcome is not Outcome.PASSED:
            break
    return checks


def _driver(host: str, gpus: int, said: HostAnswers) -> Iterator[Check]:
    smi, module = said.of("nvidia-smi"), said.of("module")
    found = gpus_of(smi.text)
    version, licence = (*module.text.split("\n"), "", "")[:2]
    about = f"driver {version}" if version else "no kernel module nvidia"
    if licence.startswith("Dual"):
        about += " with the open kernel module"
    if smi.status or len(found) != gpus:
        known = known_errors.advice("ladder", smi.text)
        seen = f"{len(found)} of {gpus} GPUs" if not smi.status else smi.words
        yield failed(CheckLevel.DRIVER, host, f"{seen} ({about})", known)
        return
    yield passed(CheckLevel.DRIVER, host, f"{gpus} GPUs, {about}", gpus=gpus)


def _docker(host: str, gpus: int, said: HostAnswers) -> Iterator[Check]:  # noqa: ARG001
    answer = said.of("docker-info")
    info = _document(answer.text)
    if answer.status or info is None:
        yield failed(CheckLevel.DOCKER, host, answer.words, _no_daemon(answer.text))
        return
    if not any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        yield failed(
            CheckLevel.DOCKER,
            host,
            f"Docker {info.get('ServerVersion', '?')} runs as root",
            "give the account ranges in /etc/subuid and /etc/subgid, stop docker.service and docker.socket "
            "of the system, and let `up` install the account's own",
        )
        return
    names = {
        str(one.get("ID", "")).removeprefix(_KIND)
        for one in info.get("DiscoveredDevices") or ()
        if str(one.get("ID", "")).startswith(_KIND)
    }
    if "nvidia" not in (info.get("Runtimes") or {}) and not names:
        folders = ", ".join(info.get("CDISpecDirs") or ()) or "none"
        yield failed(
            CheckLevel.DOCKER,
            host,
            f"it knows neither the runtime nvidia nor a CDI device of NVIDIA (it looks in {folders})",
            "daemon.json belongs into ~/.config/docker of the account, the CDI specification must be there "
            "before the daemon starts: run `up` again",
        )
        return
    foreign = _foreign(names, gpus_of(said.of("nvidia-smi").text))
    if names and foreign:
        yield failed(
            CheckLevel.DOCKER,
            host,
            f"its CDI specification is of other GPUs: {foreign}",
            "the machine was made anew or from an image: run `nvidia-ctk cdi generate` "
            "(systemctl restart nvidia-cdi-refresh), then restart the account's Docker, or run `up` again",
        )
        return
    way = f"{len(names)} CDI devices" if names else "the runtime nvidia"
    yield passed(
        CheckLevel.DOCKER, host, f"Docker {info.get('ServerVersion', '?')}, rootless, {way}"
    )


def _container(host: str, gpus: int, said: HostAnswers) -> Iterator[Check]:
    answer, wanted = said.of("docker-run"), gpus_of(said.of("nvidia-smi").text)
    found = gpus_of(answer.text)
    if answer.status or found != wanted:
        seen = answer.words if answer.status else f"it sees {len(found)} of {gpus} GPUs"
        yield failed(CheckLevel.CONTAINER, host, seen, known_errors.advice("ladder", answer.text))
        return
    yield passed(CheckLevel.CONTAINER, host, f"a container sees the same {gpus} GPUs")


def _node_cdi(host: str, gpus: int, said: HostAnswers) -> Iterator[Check]:
    answer, wanted = said.of("node-cdi"), gpus_of(said.of("nvidia-smi").text)
    names = set(_NAME.findall(answer.text))
    if answer.status:
        yield failed(CheckLevel.NODE_CDI, host, answer.words, _no_node(answer.text))
        return
    if "all" not in names:
        yield failed(
            CheckLevel.NODE_CDI, host, "it has no nvidia.com/gpu=all: no specification was made"
        )
        return
    # Newer toolkits name GPUs by index too. Those are other names of the same and do no harm.
    by_uuid = {name for name in names if name.startswith("GPU-")}
    if not by_uuid:
        yield failed(
            CheckLevel.NODE_CDI,
            host,
            f"its names are {', '.join(sorted(names))}, none by UUID",
            "the device plugin hands GPUs out by UUID: run `systemctl restart usernetes-gpus` inside the "
            "node, which makes the specification with --device-name-strategy=uuid",
        )
        return
    if by_uuid != set(wanted):
        yield failed(
            CheckLevel.NODE_CDI,
            host,
            f"{len(by_uuid) + 1} names, wanted {gpus + 1}: {_difference(by_uuid, wanted)}",
        )
        return
    yield passed(CheckLevel.NODE_CDI, host, f"{gpus + 1} names for {gpus} GPUs", names=gpus + 1)


_LOOKS = {
    CheckLevel.DRIVER: _driver,
    CheckLevel.DOCKER: _docker,
    CheckLevel.CONTAINER: _container,
    CheckLevel.NODE_CDI: _node_cdi,
}


def _document(text: str) -> Mapping[str, Any] | None:
    begin = text.find("{")
    try:
        found = json.loads(text[begin:]) if begin >= 0 else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _no_daemon(text: str) -> str:
    if "Cannot connect" in text or "no such file" in text:
        return (
            "start it: `systemctl --user start docker` as the account; with `loginctl enable-linger` it "
            "outlives the session"
        )
    return ""


def _no_node(text: str) -> str:
    if "no such container" in text.lower() or "is not running" in text:
        return "the node does not run: run `up` again, or `make up` as the account"
    return known_errors.advice("ladder", text)


def _foreign(names: set[str], wanted: Sequence[str]) -> str:
    stale = sorted(name for name in names if name.startswith("GPU-") and name not in wanted)
    return ", ".join(stale)


def _difference(found: set[str], wanted: Sequence[str]) -> str:
    gone = sorted(set(wanted) - found)
    more = sorted(found - set(wanted))
    said = [f"{', '.join(gone)} is missing"] if gone else []
    return "; ".join(said + ([f"{', '.join(more)} is no GPU of the host"] if more else []))
