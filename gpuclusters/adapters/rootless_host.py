"""A host with rootless Docker over SSH, by the scripts in `scripts/usernetes/host`."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from gpuclusters.adapters.scripts import command_error, explained, script_text
from gpuclusters.adapters.ssh import Completed, SshHost
from gpuclusters.domain import rootless_facts, rootless_files
from gpuclusters.domain.rootless_facts import LEAST_IDS, LiveRootless
from gpuclusters.domain.rootless_inputs import RootlessHostInputs

# Some hundred megabytes over a slow mirror, and their installation.
INSTALL_SECONDS = 1800.0
# The first container pulls its image.
GATE_SECONDS = 600.0
_MODE = "0644"
_FOLDER = "usernetes/host"


class SshRootlessHost:
    """`RootlessHost` of the domain."""

    def __init__(self, host: SshHost, inputs: RootlessHostInputs) -> None:
        self._host = host
        self._inputs = inputs

    @property
    def place(self) -> str:
        """Name, address and port."""
        return self._host.place

    def inspect(self) -> LiveRootless:
        """What is there: the host as root where we may be, then what only the account knows."""
        account = self._inputs.account
        paths = tuple(rootless_files.host_files(account))
        done = self._run(
            "inspect",
            [account, " ".join(rootless_files.MODULES), *paths],
            "look at the host",
            repeatable=True,
        )
        live = rootless_facts.parse_host(done.stdout.decode(errors="replace"))
        if live.uid is None or live.manager != "active":
            return live
        own = [
            f"{live.home}/{name}"
            for name in (rootless_files.DAEMON_JSON, rootless_files.USER_DROP_IN)
        ]
        done = self._own(
            live, "inspect-account", own, f"look at Docker of {account}", repeatable=True
        )
        return rootless_facts.with_account(live, done.stdout.decode(errors="replace"))

    def create_account(self) -> None:
        """The account, with a home."""
        self._run("account", ["create", self._inputs.account], f"create {self._inputs.account}")

    def install(self, packages: Mapping[str, str]) -> None:
        """Exactly these versions."""
        wanted = [f"{name}={version}" for name, version in packages.items()]
        self._run(
            "packages", wanted, f"install {', '.join(packages)}", timeout_seconds=INSTALL_SECONDS
        )

    def hold(self, names: Sequence[str]) -> None:
        """Keep packages from being upgraded by themselves."""
        self._run("hold", names, f"hold {', '.join(names)}", timeout_seconds=300.0)

    def write(self, files: Mapping[str, str]) -> None:
        """Files of root's, in one round trip."""
        lines = [f"{p} {base64.b64encode(t.encode()).decode()}\n" for p, t in sorted(files.items())]
        self._run(
            "write-files", [], f"write {', '.join(sorted(files))}", content="".join(lines).encode()
        )

    def apply(self, digest: str) -> None:
        """Modules, parameters, units."""
        unit, modules = rootless_files.BOOT_UNIT, " ".join(rootless_files.MODULES)
        self._run("apply", [digest, unit, modules], "let the files in /etc take effect")

    def stop_rootful(self) -> None:
        """Switch Docker as root off."""
        self._run("rootful", ["off"], "switch Docker as root off", timeout_seconds=300.0)

    def add_ids(self, first: int) -> None:
        """A range of subordinate ids."""
        account = self._inputs.account
        self._run(
            "account",
            ["ids", account, str(first), str(LEAST_IDS)],
            f"give {account} subordinate ids",
        )

    def linger(self, uid: int) -> None:
        """Let the account's systemd outlive its logins."""
        account = self._inputs.account
        self._run("account", ["linger", account, str(uid)], f"let {account} linger")

    def restart_manager(self, uid: int) -> None:
        """Start the account's systemd anew."""
        self._run(
            "account", ["restart", str(uid)], f"restart user@{uid}.service", timeout_seconds=180.0
        )

    def set_runtime(self) -> None:
        """CDI mode for NVIDIA's runtime."""
        self._run("toolkit", ["runtime"], "set NVIDIA's container runtime to CDI")

    def refresh_cdi(self) -> None:
        """Write the CDI specification, now and at every boot."""
        self._run("toolkit", ["cdi"], "write the CDI specification", timeout_seconds=180.0)

    def write_own(self, live: LiveRootless, path: str, content: str) -> None:
        """A file of the account's, by the account: folders on the way are its own too."""
        group = self._inputs.account
        self._own(
            live,
            "host/write_file",
            [path, _MODE, f"{group}:"],
            f"write {path}",
            content=content.encode(),
        )

    def set_up(self, live: LiveRootless) -> None:
        """Rootless Docker for the account."""
        self._own(live, "engine", ["setup"], "set up rootless Docker", timeout_seconds=300.0)

    def restart(self, live: LiveRootless) -> None:
        """Start its daemon anew."""
        self._own(live, "engine", ["restart"], "start rootless Docker", timeout_seconds=300.0)

    def gate(self, live: LiveRootless, image: str) -> str:
        """What `nvidia-smi -L` says in a container with all GPUs."""
        done = self._own(
            live,
            "engine",
            ["gate", image],
            "run a container with all GPUs",
            timeout_seconds=GATE_SECONDS,
        )
        return done.stdout.decode(errors="replace")

    def finish(self, digest: str) -> None:
        """Note that the gates are passed."""
        self._run("finish", [digest], "mark the host")

    def remove_own(self, live: LiveRootless, *, data: bool) -> None:
        """Stop the account's daemon and take it out."""
        self._own(
            live,
            "engine",
            ["remove", "remove" if data else "keep"],
            "take rootless Docker out",
            timeout_seconds=600.0,
        )

    def remove(self, paths: Sequence[str]) -> None:
        """Take out what we brought."""
        self._run("remove", paths, "take out what was prepared", timeout_seconds=INSTALL_SECONDS)

    def _run(
        self,
        name: str,
        arguments: Sequence[str],
        tried: str,
        *,
        content: bytes | None = None,
        repeatable: bool = False,
        timeout_seconds: float | None = None,
    ) -> Completed:
        """A script as root; as whoever logs in where an administrator prepares the host."""
        return self._finished(
            ["sh", "-s", "--", *arguments],
            script_text(f"{_FOLDER}/{name}", content),
            tried,
            as_root=self._inputs.sudo,
            repeatable=repeatable,
            timeout_seconds=timeout_seconds,
        )

    def _own(
        self,
        live: LiveRootless,
        name: str,
        arguments: Sequence[str],
        tried: str,
        *,
        content: bytes | None = None,
        repeatable: bool = False,
        timeout_seconds: float | None = None,
    ) -> Completed:
        """A script as the account, with the environment that only its own login would give it."""
        folder = live.runtime_directory
        environment = [
            f"HOME={live.home}",
            f"XDG_RUNTIME_DIR={folder}",
            f"DBUS_SESSION_BUS_ADDRESS=unix:path={folder}/bus",
            f"DOCKER_HOST=unix://{folder}/docker.sock",
        ]
        account = self._inputs.account
        other = [] if self._host.connection.user == account else ["sudo", "-n", "-u", account]
        script = name if "/" in name else f"{_FOLDER}/{name}"
        return self._finished(
            [*other, "env", *environment, "sh", "-s", "--", *arguments],
            script_text(script, content),
            tried,
            as_root=False,
            repeatable=repeatable,
            timeout_seconds=timeout_seconds,
        )

    def _finished(
        self,
        argv: Sequence[str],
        text: str,
        tried: str,
        *,
        as_root: bool,
        repeatable: bool,
        timeout_seconds: float | None,
    ) -> Completed:
        done = self._host.run(
            argv,
            tried=tried,
            stdin=text.encode(),
            repeatable=repeatable,
            timeout_seconds=timeout_seconds,
            as_root=as_root,
        )
        if done.status == 0:
            return done
        raise explained(command_error(self._host, tried, done), "rootless")
