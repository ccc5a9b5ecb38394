"""A host with rootless Docker over SSH, by the scripts in `gpuclusters/rootless/scripts`."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gpuclusters.core.converge import Reporter, Step
from gpuclusters.core.finding import Finding, Refused, blocked
from gpuclusters.host.script import read_facts, run_script
from gpuclusters.host.ssh import SshHost
from gpuclusters.rootless import decide, files
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs

# Some hundred megabytes over a slow mirror, and their installation.
INSTALL_SECONDS = 1800.0
# The first container pulls its image.
GATE_SECONDS = 600.0


class RootlessCapability:
    """Rootless Docker of one account on one host."""

    def __init__(self, inputs: RootlessHostInputs, host: SshHost, reporter: Reporter) -> None:
        self._inputs, self._host, self._reporter = inputs, host, reporter
        self.target = host.target
        account = inputs.account

        def root(
            tried: str, name: str, *arguments: str, seconds: float | None = None
        ) -> Step[LiveRootless]:
            return _step(lambda _: self._run(tried, name, arguments, seconds))

        self.steps = {
            "account": root(f"create {account}", "account", "create", account),
            "packages": _step(self._install),
            "files": _step(self._write),
            "rootful": root("switch Docker as root off", "rootful", "off", seconds=300.0),
            "hold": _step(self._hold),
            "ids": _step(self._add_ids),
            "linger": _step(self._let_linger),
            "runtime": root("set NVIDIA's runtime to CDI", "toolkit", "runtime"),
            "cdi": root("write the CDI specification", "toolkit", "cdi", seconds=180.0),
            "manager": _step(self._restart_manager, look=True),
            "configuration": _step(self._configure),
            "setup": _step(self._set_up, look=True),
            "restart": _step(self._restart, look=True),
        }

    def observe(self) -> LiveRootless:
        """The host as root where we may be, then what only the account knows."""
        account, own = self._inputs.account, (files.DAEMON_JSON, files.USER_DROP_IN)
        arguments = [account, " ".join(files.MODULES), *files.host_files(account)]
        tried = "look at the host"
        text = self._run(tried, "inspect", arguments, repeatable=True)
        live = read_facts(LiveRootless, self._host, text, tried=tried)
        if live.uid is None or live.manager != "active":
            return live
        paths = [f"{live.home}/{name}" for name in own]
        tried = f"look at Docker of {account}"
        text += self._own(live, tried, "inspect-account", paths, repeatable=True)
        return read_facts(LiveRootless, self._host, text, tried=tried)

    def findings(self, live: LiveRootless) -> Iterable[Finding]:
        """See `decide.findings`."""
        return decide.findings(self._inputs, live)

    def differences(self, live: LiveRootless) -> Iterable[Finding]:
        """A host is prepared whoever prepared it before."""
        return [one for one in self.findings(live) if not one.step]

    def prove(self, live: LiveRootless) -> None:
        """A container sees all GPUs, which is more than being installed; once a boot."""
        stamp = self._inputs.stamp(live)
        if live.passed == stamp and self._inputs.sudo:
            return
        tried = "run a container with all GPUs"
        image = self._inputs.probe_image
        said = self._own(live, tried, "engine", ["gate", image], GATE_SECONDS)
        seen = [uuid for uuid in live.gpu if uuid in said]
        if len(seen) < len(live.gpu):
            sees = f"a container with nvidia.com/gpu=all sees {len(seen)} of {len(live.gpu)} GPUs"
            words = " ".join(said.split())[:300] or "nvidia-smi said nothing"
            code = "rootless.container-without-gpus"
            raise Refused(self.target, [blocked(code, f"{sees}: {words}")])
        if self._inputs.sudo:
            self._run("mark the host", "finish", [stamp])

    def remove(self) -> None:
        """Stop the account's daemon and take out what we brought; the account stays."""
        live = self.observe()
        if live.uid is not None and live.manager == "active":
            data = "remove" if self._inputs.remove_data else "keep"
            tried = "take rootless Docker out"
            self._own(live, tried, "engine", ["remove", data], INSTALL_SECONDS)
        if self._inputs.sudo:
            paths = [*files.host_files(self._inputs.account)]
            self._run("take out what was prepared", "remove", paths, INSTALL_SECONDS)

    def _install(self, live: LiveRootless) -> None:
        missing = files.missing_packages(self._inputs, live)
        wanted = [f"{name}={version}" for name, version in missing.items()]
        self._run(f"install {', '.join(missing)}", "packages", wanted, INSTALL_SECONDS)

    def _hold(self, live: LiveRootless) -> None:
        names = files.not_held(live)
        self._run(f"hold {', '.join(names)}", "hold", names, 300.0)

    def _add_ids(self, live: LiveRootless) -> None:
        account, first = self._inputs.account, str(decide.next_range(live))
        tried = f"give {account} subordinate ids"
        self._run(tried, "account", ["ids", account, first, str(decide.LEAST_IDS)])

    def _let_linger(self, live: LiveRootless) -> None:
        account = self._inputs.account
        self._run(f"let {account} linger", "account", ["linger", account, str(live.uid)])

    def _set_up(self, live: LiveRootless) -> None:
        self._own(live, "set up rootless Docker", "engine", ["setup"], 300.0)

    def _restart_manager(self, live: LiveRootless) -> None:
        uid = str(live.uid)
        self._run(f"restart user@{uid}.service", "account", ["restart", uid], 180.0)

    def _write(self, live: LiveRootless) -> None:
        """All differing files in one round trip, then modules, parameters and units."""
        account = self._inputs.account
        wanted = files.host_files(account)
        if paths := files.differing(wanted, live.file):
            lines = (f"{p} {base64.b64encode(wanted[p].encode()).decode()}\n" for p in paths)
            tried = f"write {', '.join(paths)}"
            self._run(tried, "write-files", [], content="".join(lines).encode())
        digest, modules = files.host_digest(account), " ".join(files.MODULES)
        tried = "let the files in /etc take effect"
        self._run(tried, "apply", [digest, files.BOOT_UNIT, modules])

    def _configure(self, live: LiveRootless) -> None:
        """The account's files, by the account: folders on the way are its own too."""
        wanted = files.account_files(live.home, live.daemon_json)
        for path in files.differing(wanted, live.file):
            where, content = [path, "0644", f"{self._inputs.account}:"], wanted[path].encode()
            self._own(live, f"write {path}", "host/write_file", where, content=content)

    def _restart(self, live: LiveRootless) -> None:
        if live.docker_info.containers:
            doing = f"restarting Docker of {self._inputs.account}"
            self._reporter.note(f"{self.target}: {doing}; its containers stop for a moment")
        self._own(live, "start rootless Docker", "engine", ["restart"], 300.0)

    def _run(
        self,
        tried: str,
        name: str,
        arguments: Sequence[str],
        seconds: float | None = None,
        **how: Any,
    ) -> str:
        """A script as root; as whoever logs in where an administrator prepares the host."""
        how = {"account": "" if self._inputs.sudo else self._host.connection.user, **how}
        script, area = name if "/" in name else f"rootless/{name}", "rootless"
        how |= {"tried": tried, "timeout_seconds": seconds, "area": area}
        done = run_script(self._host, script, arguments, **how)
        return done.stdout.decode(errors="replace")

    def _own(
        self,
        live: LiveRootless,
        tried: str,
        name: str,
        arguments: Sequence[str],
        seconds: float | None = None,
        **how: Any,
    ) -> str:
        """A script as the account, with the environment that only its own login would give it."""
        folder = live.runtime_directory
        environment = (
            f"HOME={live.home}",
            f"XDG_RUNTIME_DIR={folder}",
            f"DBUS_SESSION_BUS_ADDRESS=unix:path={folder}/bus",
            f"DOCKER_HOST=unix://{folder}/docker.sock",
        )
        how |= {"account": self._inputs.account, "environment": environment}
        return self._run(tried, name, arguments, seconds, **how)


def _step(run: Callable[[LiveRootless], object], *, look: bool = False) -> Step[LiveRootless]:
    def with_live(live: LiveRootless, _found: Sequence[Finding]) -> None:
        run(live)

    return Step(with_live, look=look)
