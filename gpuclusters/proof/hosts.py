"""Rungs 1 to 4: asked of a host over SSH by `scripts/ladder.sh`, and what its answers show."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from gpuclusters.core import scripts
from gpuclusters.host.script import command_error
from gpuclusters.host.ssh import SshHost
from gpuclusters.proof.checks import HOST_RUNGS, USERNETES, Check, CheckLevel, Outcome
from gpuclusters.proof.logs import document
from gpuclusters.rootless.model import DEFAULT_PROBE_IMAGE

PROGRAM = "ladder.sh"
TIMEOUT_SECONDS = 600.0
"""The image of rung 3 may have to be pulled, through a user-space network."""
_UUID = re.compile(r"\(UUID: (GPU-[0-9a-f-]+)\)")
_NAME = re.compile(r"nvidia\.com/gpu=(\S+)")
_MARK = re.compile(r"^== (\w[\w-]*) (\d+)$", re.MULTILINE)
_KIND = "nvidia.com/gpu="
_SAID = 300


def ask(
    host: SshHost,
    account: str,
    highest: CheckLevel = HOST_RUNGS[-1],
    image: str = DEFAULT_PROBE_IMAGE,
) -> HostAnswers:
    """What the host says up to a rung, as the account or by one that may `sudo` to it."""
    tried = "climb the ladder's rungs on the host"
    become = [] if host.connection.user == account else ["sudo", "-n", "-u", account]
    done = host.run(
        [*become, "sh", "-s", "--", image, str(min(highest, HOST_RUNGS[-1]).value)],
        tried=tried,
        stdin=scripts.read(f"proof/{PROGRAM}").encode(),
        repeatable=True,
        timeout_seconds=TIMEOUT_SECONDS,
        as_root=False,
    )
    if done.status != 0:
        raise command_error(host, tried, done)
    return parse(done.stdout.decode(errors="replace"))


class Answer(NamedTuple):
    """What one command printed, and its exit status."""

    status: int
    text: str

    @property
    def words(self) -> str:
        """For a message: its last words on one line."""
        flat = " ".join(self.text.split())
        return flat[-_SAID:] or f"it said nothing, exit status {self.status}"

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs in the output of `nvidia-smi -L`, sorted."""
        return tuple(sorted(_UUID.findall(self.text)))


class HostAnswers(NamedTuple):
    """All that a host said, by section of the script."""

    answers: Mapping[str, Answer]

    def of(self, section: str) -> Answer:
        """One section; what was not said counts as failed."""
        return self.answers.get(section, Answer(-1, "the script did not come so far"))

    @property
    def gpus(self) -> tuple[str, ...]:
        """UUIDs that the host itself shows."""
        return self.of("nvidia-smi").gpus


def parse(output: str) -> HostAnswers:
    """Sections of the script's output: a line `== NAME STATUS`, then what the command printed."""
    _, *parts = _MARK.split(output)
    said = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    return HostAnswers({name: Answer(int(n), text.strip("\n")) for name, n, text in said})


def judge(
    host: str, gpus: int, said: HostAnswers, highest: CheckLevel = CheckLevel.NODE_CDI
) -> list[Check]:
    """The rungs of one host, up to the first that does not hold."""
    checks: list[Check] = []
    for rung, look in _LOOKS.items():
        if rung > highest or (checks and checks[-1].outcome is not Outcome.PASSED):
            break
        checks.append(look(host, gpus, said))
    return checks


def _driver(host: str, gpus: int, said: HostAnswers) -> Check:
    smi, module = said.of("nvidia-smi"), said.of("module")
    version, licence = (*module.text.split("\n"), "", "")[:2]
    about = f"driver {version}" if version else "no kernel module nvidia"
    if licence.startswith("Dual"):
        about += " with the open kernel module"
    if smi.status or len(smi.gpus) != gpus:
        seen = smi.words if smi.status else f"{len(smi.gpus)} of {gpus} GPUs"
        return USERNETES.failed(CheckLevel.DRIVER, host, f"{seen} ({about})", told=[smi.text])
    return USERNETES.passed(CheckLevel.DRIVER, host, f"{gpus} GPUs, {about}", gpus=gpus)


def _docker(host: str, gpus: int, said: HostAnswers) -> Check:  # noqa: ARG001
    answer, bad = said.of("docker-info"), partial(USERNETES.failed, CheckLevel.DOCKER, host)
    info = document(answer.text)
    if answer.status or not info:
        away = "Cannot connect" in answer.text or "no such file" in answer.text
        start = (
            "start it: `systemctl --user start docker` as the account; with `loginctl "
            "enable-linger` it outlives the session"
        )
        return bad(answer.words, start if away else "")
    about = f"Docker {info.get('ServerVersion', '?')}"
    if not any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        return bad(
            f"{about} runs as root",
            "give the account ranges in /etc/subuid and /etc/subgid, stop docker.service and docker.socket "
            "of the system, and let `up` install the account's own",
        )
    devices = [str(one.get("ID", "")) for one in info.get("DiscoveredDevices") or ()]
    names = {name.removeprefix(_KIND) for name in devices if name.startswith(_KIND)}
    if "nvidia" not in (info.get("Runtimes") or {}) and not names:
        folders = ", ".join(info.get("CDISpecDirs") or ()) or "none"
        return bad(
            f"it knows neither the runtime nvidia nor a CDI device of NVIDIA (it looks in {folders})",
            "daemon.json belongs into ~/.config/docker of the account, the CDI specification must be there "
            "before the daemon starts: run `up` again",
        )
    foreign = sorted(n for n in names if n.startswith("GPU-") and n not in said.gpus)
    if foreign:
        return bad(
            f"its CDI specification is of other GPUs: {', '.join(foreign)}",
            "the machine was made anew or from an image: run `nvidia-ctk cdi generate` "
            "(systemctl restart nvidia-cdi-refresh), then restart the account's Docker, or run `up` again",
        )
    way = f"{len(names)} CDI devices" if names else "the runtime nvidia"
    return USERNETES.passed(CheckLevel.DOCKER, host, f"{about}, rootless, {way}")


def _container(host: str, gpus: int, said: HostAnswers) -> Check:
    answer = said.of("docker-run")
    if answer.status or answer.gpus != said.gpus:
        seen = answer.words if answer.status else f"it sees {len(answer.gpus)} of {gpus} GPUs"
        return USERNETES.failed(CheckLevel.CONTAINER, host, seen, told=[answer.text])
    return USERNETES.passed(CheckLevel.CONTAINER, host, f"a container sees the same {gpus} GPUs")


def _node_cdi(host: str, gpus: int, said: HostAnswers) -> Check:
    answer, bad = said.of("node-cdi"), partial(USERNETES.failed, CheckLevel.NODE_CDI, host)
    names = set(_NAME.findall(answer.text))
    if answer.status:
        away = "no such container" in answer.text.lower() or "is not running" in answer.text
        way = "the node does not run: run `up` again, or `make up` as the account" if away else ""
        return bad(answer.words, way, [answer.text])
    if "all" not in names:
        return bad("it has no nvidia.com/gpu=all: no specification was made")
    # Newer toolkits name GPUs by index too. Those are other names of the same and do no harm.
    by_uuid, wanted = {name for name in names if name.startswith("GPU-")}, set(said.gpus)
    if not by_uuid:
        return bad(
            f"its names are {', '.join(sorted(names))}, none by UUID",
            "the device plugin hands GPUs out by UUID: run `systemctl restart usernetes-gpus` inside the "
            "node, which makes the specification with --device-name-strategy=uuid",
        )
    if by_uuid != wanted:
        gone, more = sorted(wanted - by_uuid), sorted(by_uuid - wanted)
        parts = [f"{', '.join(gone)} is missing"] if gone else []
        parts += [f"{', '.join(more)} is no GPU of the host"] if more else []
        return bad(f"{len(by_uuid) + 1} names, wanted {gpus + 1}: {'; '.join(parts)}")
    return USERNETES.passed(
        CheckLevel.NODE_CDI, host, f"{gpus + 1} names for {gpus} GPUs", names=gpus + 1
    )


_LOOKS: Mapping[CheckLevel, Callable[[str, int, HostAnswers], Check]] = dict(
    zip(HOST_RUNGS, (_driver, _docker, _container, _node_cdi), strict=True)
)
