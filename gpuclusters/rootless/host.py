"""A host with rootless Docker over SSH, by the scripts in `gpuclusters/rootless/scripts`."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuclusters.core.converge import Step
from gpuclusters.core.finding import Finding, refused
from gpuclusters.host.capability import HostCapability
from gpuclusters.host.model import differing
from gpuclusters.host.script import read_facts
from gpuclusters.rootless import decide, files
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs

# Some hundred megabytes over a slow mirror, and their installation.
INSTALL_SECONDS = 1800.0
# The first container pulls its image.
GATE_SECONDS = 600.0


class RootlessCapability(HostCapability[RootlessHostInputs, LiveRootless]):
    """Rootless Docker of one account on one host."""

    room = area = "rootless"

    @property
    def steps(self) -> Mapping[str, Step[LiveRootless]]:
        account, root = self._inputs.account, self._as_root
        return {
            "account": root(f"create {account}", "account", "create", account),
            "packages": Step(self._install, look=False),
            "files": Step(self._write, look=False),
            "rootful": root("switch Docker as root off", "rootful", "off", seconds=300.0),
            "hold": Step(self._hold, look=False),
            "ids": Step(self._add_ids, look=False),
            "linger": Step(self._let_linger, look=False),
            "runtime": root("set NVIDIA's runtime to CDI", "toolkit", "runtime"),
            "cdi": root("write the CDI specification", "toolkit", "cdi", seconds=180.0),
            "manager": Step(self._restart_manager),
            "configuration": Step(self._configure, look=False),
            "setup": Step(self._set_up),
            "restart": Step(self._restart),
        }

    def observe(self) -> LiveRootless:
        account, own = self._inputs.account, (files.DAEMON_JSON, files.USER_DROP_IN)
        arguments = [account, " ".join(files.MODULES), *files.host_files(account)]
        tried = "look at the host"
        text = self._run(tried, "inspect", *arguments, repeatable=True)
        live = read_facts(LiveRootless, self._host, text, tried=tried)
        if live.uid is None or live.manager != "active":
            return live
        paths = [f"{live.home}/{name}" for name in own]
        tried = f"look at Docker of {account}"
        text += self._own(live, tried, "inspect-account", *paths, repeatable=True)
        return read_facts(LiveRootless, self._host, text, tried=tried)

    def findings(self, live: LiveRootless) -> Iterable[Finding]:
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
        said = self._own(live, tried, "engine", "gate", image, seconds=GATE_SECONDS)
        seen, gpus = sum(uuid in said for uuid in live.gpu), len(live.gpu)
        if seen < gpus:
            words = " ".join(said.split())[:300] or "nvidia-smi said nothing"
            code = "rootless.container-without-gpus"
            raise refused(self.target, code, seen=seen, gpus=gpus, words=words)
        if self._inputs.sudo:
            self._run("mark the host", "finish", stamp)

    def outputs(self, live: LiveRootless) -> Mapping[str, Any]:
        toolkit = live.package.get(files.TOOLKIT[0], "")
        facts = {
            "uid": live.uid,
            "home": live.home,
            "runtime_directory": live.runtime_directory,
            "docker_host": f"unix://{live.runtime_directory}/docker.sock",
            "docker": live.docker_info.version,
            "container_toolkit": toolkit.partition("-")[0],
            "driver": live.module,
            "kernel": live.kernel,
        }
        return {"facts": facts, "gpu_uuids": list(live.gpu)}

    def is_absent(self, live: LiveRootless) -> bool:
        return decide.is_absent(self._inputs, live)

    def remove(self) -> None:
        """Stop the account's daemon and take out what we brought; the account stays."""
        live = self.observe()
        if live.uid is not None and live.manager == "active":
            data = "remove" if self._inputs.remove_data else "keep"
            tried = "take rootless Docker out"
            self._own(live, tried, "engine", "remove", data, seconds=INSTALL_SECONDS)
        if self._inputs.sudo:
            paths = [*files.host_files(self._inputs.account)]
            self._run("take out what was prepared", "remove", *paths, seconds=INSTALL_SECONDS)

    def _as_root(self, tried: str, name: str, *words: str, **how: Any) -> Step[LiveRootless]:
        return Step(lambda *_: self._run(tried, name, *words, **how), look=False)

    def _install(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        missing = files.missing_packages(self._inputs, live)
        wanted = [f"{name}={version}" for name, version in missing.items()]
        self._run(f"install {', '.join(missing)}", "packages", *wanted, seconds=INSTALL_SECONDS)

    def _hold(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        names = files.not_held(live)
        self._run(f"hold {', '.join(names)}", "hold", *names, seconds=300.0)

    def _add_ids(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        account, ids = self._inputs.account, (decide.next_range(live), decide.LEAST_IDS)
        self._run(f"give {account} subordinate ids", "account", "ids", account, *map(str, ids))

    def _let_linger(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        account = self._inputs.account
        self._run(f"let {account} linger", "account", "linger", account, str(live.uid))

    def _set_up(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        self._own(live, "set up rootless Docker", "engine", "setup", seconds=300.0)

    def _restart_manager(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        tried = f"restart user@{live.uid}.service"
        self._run(tried, "account", "restart", str(live.uid), seconds=180.0)

    def _write(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        """All differing files in one round trip, then modules, parameters and units."""
        account = self._inputs.account
        wanted = files.host_files(account)
        if texts := dict(sorted(differing(wanted, live.file).items())):
            encoded = {
                path: base64.b64encode(text.encode()).decode() for path, text in texts.items()
            }
            content = "".join(f"{path} {text}\n" for path, text in encoded.items()).encode()
            self._run(f"write {', '.join(texts)}", "write-files", content=content)
        words = (files.host_digest(account), files.BOOT_UNIT, " ".join(files.MODULES))
        self._run("let the files in /etc take effect", "apply", *words)

    def _configure(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        """The account's files, by the account: folders on the way are its own too."""
        wanted, owner = files.account_files(live.home, live.daemon_json), f"{self._inputs.account}:"
        for path, text in sorted(differing(wanted, live.file).items()):
            where, content = (path, "0644", owner), text.encode()
            self._own(live, f"write {path}", "host/write_file", *where, content=content)

    def _restart(self, live: LiveRootless, _found: Sequence[Finding]) -> None:
        if live.docker_info.containers:
            doing = f"restarting Docker of {self._inputs.account}"
            self._reporter.note(f"{self.target}: {doing}; its containers stop for a moment")
        self._own(live, "start rootless Docker", "engine", "restart", seconds=300.0)

    def _run(self, tried: str, name: str, *arguments: str, **how: Any) -> str:
        """A script as root; as whoever logs in where an administrator prepares the host."""
        account = "" if self._inputs.sudo else self._host.connection.user
        return super()._run(tried, name, *arguments, **{"account": account, **how})

    def _own(self, live: LiveRootless, tried: str, name: str, *arguments: str, **how: Any) -> str:
        """A script as the account, with the environment that only its own login would give it."""
        folder = live.runtime_directory
        how["environment"] = (
            f"HOME={live.home}",
            f"XDG_RUNTIME_DIR={folder}",
            f"DBUS_SESSION_BUS_ADDRESS=unix:path={folder}/bus",
            f"DOCKER_HOST=unix://{folder}/docker.sock",
        )
        return self._run(tried, name, *arguments, account=self._inputs.account, **how)
