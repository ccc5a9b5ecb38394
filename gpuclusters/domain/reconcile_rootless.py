"""A host with rootless Docker: read, compare, act, look again, prove that a container sees all GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from gpuclusters.core.converge import Reporter
from gpuclusters.domain import rootless_files as files
from gpuclusters.domain import rootless_packages, rootless_refusals
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.rootless_facts import LiveRootless
from gpuclusters.domain.rootless_inputs import RootlessHostInputs
from gpuclusters.domain.rootless_missing import missing, next_range
from gpuclusters.domain.rootless_steps import ROUNDS, Missing, Step

_MOST_ROUNDS = 8


class RootlessHost(Protocol):
    """The host, by role."""

    @property
    def place(self) -> str:
        """As errors name it."""

    def inspect(self) -> LiveRootless:
        """What is there."""

    def create_account(self) -> None:
        """The account, with a home."""

    def install(self, packages: Mapping[str, str]) -> None:
        """Exactly these versions; what of them is new is noted."""

    def hold(self, names: Sequence[str]) -> None:
        """Keep packages from being upgraded by themselves."""

    def write(self, files: Mapping[str, str]) -> None:
        """Files of root's by path."""

    def apply(self, digest: str) -> None:
        """Let root's files take effect; noted with the digest."""

    def stop_rootful(self) -> None:
        """Switch Docker as root off."""

    def add_ids(self, first: int) -> None:
        """A range of subordinate ids."""

    def linger(self, uid: int) -> None:
        """Let the account's systemd outlive its logins."""

    def restart_manager(self, uid: int) -> None:
        """Start the account's systemd anew."""

    def set_runtime(self) -> None:
        """CDI mode for NVIDIA's runtime."""

    def refresh_cdi(self) -> None:
        """Write the CDI specification, now and at every boot."""

    def write_own(self, live: LiveRootless, path: str, content: str) -> None:
        """A file of the account's."""

    def set_up(self, live: LiveRootless) -> None:
        """Rootless Docker for the account."""

    def restart(self, live: LiveRootless) -> None:
        """Start its daemon anew."""

    def gate(self, live: LiveRootless, image: str) -> str:
        """What `nvidia-smi -L` says in a container with all GPUs."""

    def finish(self, digest: str) -> None:
        """Note that the gates are passed."""

    def remove_own(self, live: LiveRootless, *, data: bool) -> None:
        """Stop the account's daemon and take it out."""

    def remove(self, paths: Sequence[str]) -> None:
        """Take out what we brought."""


def ensure(inputs: RootlessHostInputs, host: RootlessHost, reporter: Reporter) -> LiveRootless:
    """Bring a host to its inputs.

    Raises:
        RefusalError: it must not or cannot be done; all reasons at once.
        AdapterError: a step failed; running again goes on.
    """
    done: set[Step] = set()
    for _ in range(_MOST_ROUNDS):
        live = host.inspect()
        lacks = missing(inputs, live)
        rootless_refusals.before_changing(inputs, live, lacks)
        still_so(inputs, lacks, done)
        steps = _next(lacks)
        if not steps:
            _prove(inputs, host, live)
            return live
        for step in Step:
            if step in steps:
                _act(step, inputs, host, live, reporter)
        done |= steps
    raise RefusalError(
        host.place,
        f"it is not at rest after {_MOST_ROUNDS} rounds: {'; '.join(one.problem for one in lacks)}",
        "look on the host what changes it again (configuration management), then run again",
    )


def _next(lacks: Sequence[Missing]) -> frozenset[Step]:
    wanted = {one.step for one in lacks}
    return next((steps & wanted for steps in ROUNDS if steps & wanted), frozenset())


def still_so(inputs: RootlessHostInputs, lacks: Sequence[Missing], done: set[Step]) -> None:
    """A step that was done and is wanted again did not help: say why, instead of doing it for ever.

    Raises:
        RefusalError: with all of them.
    """
    left = [one for one in lacks if one.step in done]
    if left:
        found = [(one.problem, one.stays or "run again") for one in left]
        raise RefusalError(inputs.connection.place, *rootless_refusals.joined(found))


def _act(
    step: Step,
    inputs: RootlessHostInputs,
    host: RootlessHost,
    live: LiveRootless,
    reporter: Reporter,
) -> None:
    uid = live.uid or 0
    match step:
        case Step.ACCOUNT:
            host.create_account()
        case Step.PACKAGES:
            host.install(rootless_packages.missing(inputs, live))
        case Step.FILES:
            _write_files(inputs, host, live)
        case Step.HOLD:
            host.hold(rootless_packages.not_held(live))
        case Step.ROOTFUL:
            host.stop_rootful()
        case Step.IDS:
            host.add_ids(next_range(live))
        case Step.LINGER:
            host.linger(uid)
        case Step.MANAGER:
            host.restart_manager(uid)
        case Step.RUNTIME:
            host.set_runtime()
        case Step.CDI:
            host.refresh_cdi()
        case Step.CONFIGURATION:
            wanted = files.account_files(live.home, live.daemon_json)
            for path in files.differing(wanted, dict(live.digests)):
                host.write_own(live, path, wanted[path])
        case Step.SETUP:
            host.set_up(live)
        case Step.RESTART:
            if live.engine.containers:
                reporter.note(
                    f"{host.place}: Docker of {inputs.account} starts anew; its containers stop for a moment"
                )
            host.restart(live)


def _write_files(inputs: RootlessHostInputs, host: RootlessHost, live: LiveRootless) -> None:
    wanted = files.host_files(inputs.account)
    differing = files.differing(wanted, dict(live.digests))
    if differing:
        host.write({path: wanted[path] for path in differing})
    host.apply(files.host_digest(inputs.account))


def _prove(inputs: RootlessHostInputs, host: RootlessHost, live: LiveRootless) -> None:
    """A container sees all GPUs, which is more than being installed. Once for each boot and set of GPUs."""
    stamp = f"{inputs.digest} {live.boot_id} {' '.join(live.gpus)}"
    if live.passed == stamp and inputs.sudo:
        return
    said = host.gate(live, inputs.probe_image)
    unseen = [uuid for uuid in live.gpus if uuid not in said]
    if unseen:
        raise RefusalError(
            host.place,
            f"a container with nvidia.com/gpu=all sees {len(live.gpus) - len(unseen)} of "
            f"{len(live.gpus)} GPUs: {' '.join(said.split())[:300] or 'nvidia-smi said nothing'}",
            "look at `nvidia-ctk cdi list` there, and at the devices /dev/nvidia*",
        )
    if inputs.sudo:
        host.finish(stamp)


def remove(inputs: RootlessHostInputs, host: RootlessHost) -> None:
    """Stop the account's daemon and take out what we brought; the account stays. Gone already is fine."""
    live = host.inspect()
    if live.uid is not None and live.manager == "active":
        host.remove_own(live, data=inputs.remove_data)
    if inputs.sudo:
        host.remove(tuple(files.host_files(inputs.account)))


def drift(inputs: RootlessHostInputs, live: LiveRootless) -> list[str]:
    """In words, how a host differs from what was made of it."""
    found = [one.problem for one in missing(inputs, live)]
    if live.manager != "active" and live.linger:
        found.append(f"user@{live.uid}.service is {live.manager or 'not there'}")
    if len(live.gpus) != inputs.gpus:
        found.append(f"nvidia-smi shows {len(live.gpus)} of {inputs.gpus} GPUs")
    return list(dict.fromkeys(found))


def is_there(inputs: RootlessHostInputs, live: LiveRootless) -> bool:
    """Whether anything of ours is on the host."""
    ours = set(files.host_files(inputs.account))
    return bool(live.applied or live.user_unit or ours & set(live.digests))


def outputs(inputs: RootlessHostInputs, live: LiveRootless) -> dict[str, Any]:
    """What is kept of the host beside its inputs."""
    return {
        "facts": {
            "uid": live.uid,
            "home": live.home,
            "runtime_directory": live.runtime_directory,
            "docker_host": f"unix://{live.runtime_directory}/docker.sock",
            "docker": live.engine.version,
            "container_toolkit": live.packages.get(rootless_packages.TOOLKIT[0], "").partition("-")[
                0
            ],
            "driver": live.module,
            "kernel": live.kernel,
        },
        "gpu_uuids": list(live.gpus),
        "drift": drift(inputs, live),
    }
