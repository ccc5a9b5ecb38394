"""Where a tool comes from: PATH, the cache, the official download, or a build; in this order.

A tool that Debian has ready (`Tool.debian`) is unpacked from its package instead of being built.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

from lab.tools import build as go_build
from lab.tools import debian_packages
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS, Platform, Tool, host_platform, parse_version
from lab.tools.download import NetworkError, download
from lab.tools.golang import find_go, is_offline
from lab.tools.model import Report, ToolError, to_stderr

_VERSION_SECONDS = 60

Download = Callable[[Tool, Platform, Path], Path | None]
Build = Callable[[Sequence[Tool], Path, Report], Mapping[str, Path]]
Unpack = Callable[[Tool, Path], Path]


def resolve(name: str, report: Report = to_stderr) -> Path:
    """The path of one tool, fetched or built when it is missing; see `ensure`."""
    return ensure([name], report)[name]


def ensure(names: Sequence[str], report: Report = to_stderr) -> dict[str, Path]:
    """The paths of all `names`, fetching or building what is missing.

    Raises `ToolError`, one sentence that says what to do, when a tool cannot be had.
    """
    return Resolver().ensure(names, report)


def _build_with_go(tools: Sequence[Tool], target: Path, report: Report) -> Mapping[str, Path]:
    go = find_go(ToolCache(), report, offline=is_offline())
    return go_build.build(go, tools, target, report)


@dataclass
class Resolver:
    """The search, with its sources as parts that a test can replace."""

    tools: Mapping[str, Tool] = field(default_factory=lambda: TOOLS)
    cache: ToolCache = field(default_factory=ToolCache)
    platform: Platform = field(default_factory=host_platform)
    offline: bool = field(default_factory=is_offline)
    download: Download = download
    build: Build = _build_with_go
    unpack: Unpack = debian_packages.unpack

    def ensure(self, names: Sequence[str], report: Report) -> dict[str, Path]:
        """See the function `ensure`."""
        wanted = [self._tool(name) for name in dict.fromkeys(names)]
        found = self._from_path(wanted, report) | self._from_cache(wanted)
        missing = [tool for tool in wanted if tool.name not in found]
        if missing:
            with self.cache.lock(report):
                # Another process may have made them while this one waited.
                found |= self._from_cache(missing)
                found |= self._make([t for t in missing if t.name not in found], report)
        return {name: found[name] for name in names}

    def _tool(self, name: str) -> Tool:
        if name not in self.tools:
            raise ToolError(f"the lab knows no tool {name!r}; it knows {', '.join(self.tools)}")
        return self.tools[name]

    def _from_path(self, tools: Iterable[Tool], report: Report) -> dict[str, Path]:
        found = {}
        for tool in tools:
            path = shutil.which(tool.name) if tool.on_path else None
            if path is None:
                continue
            version = program_version(Path(path), tool)
            if version and tool.accepts(version):
                report(f"using {tool.name} {version} from PATH ({path})")
                found[tool.name] = Path(path)
            else:
                report(
                    f"not using {path}: it is {tool.name} {version or 'of an unknown version'}, "
                    f"the lab needs {tool.accepted}"
                )
        return found

    def _from_cache(self, tools: Iterable[Tool]) -> dict[str, Path]:
        entries = {tool.name: self.cache.find(tool, self.platform) for tool in tools}
        return {name: path for name, path in entries.items() if path}

    def _make(self, tools: Sequence[Tool], report: Report) -> dict[str, Path]:
        made = {} if self.offline else self._fetch(tools, report)
        for tool in tools:
            if tool.debian and tool.name not in made:
                made[tool.name] = self._unpack(tool, report)
        rest = [tool for tool in tools if tool.name not in made]
        modules = {
            module: [*group] for module, group in groupby(sorted(rest, key=_module), _module)
        }
        for number, (module, members) in enumerate(modules.items(), 1):
            step = f"step {number} of {len(modules)}: " if len(modules) > 1 else ""
            with self.cache.workspace() as folder:
                told = partial(_told, report, step)
                for name, program in self.build(members, folder, told).items():
                    origin = f"built from lab/tools/modules/{module}/go.mod"
                    made[name] = self._install(self.tools[name], program, origin)
        return made

    def _unpack(self, tool: Tool, report: Report) -> Path:
        if self.offline:
            raise ToolError(
                f"{tool.name} is not on PATH and GPU_CLUSTERS_OFFLINE=1 forbids fetching it; install it"
            )
        with self.cache.workspace() as folder:
            program = self._install(tool, self.unpack(tool, folder), "Debian package")
        report(f"unpacked {tool.name} from its Debian package")
        return program

    def _fetch(self, tools: Sequence[Tool], report: Report) -> dict[str, Path]:
        fetched: dict[str, Path] = {}
        for tool in tools:
            with self.cache.workspace() as folder:
                try:
                    program = self.download(tool, self.platform, folder)
                except NetworkError as error:
                    report(f"no downloads on this machine ({error}): building instead")
                    return fetched
                except ToolError as error:
                    report(f"{error}; building {tool.name} instead")
                    continue
                if program is not None:
                    fetched[tool.name] = self._install(tool, program, "official download")
                    report(f"downloaded {tool.name} {tool.version}, checksum verified")
        return fetched

    def _install(self, tool: Tool, program: Path, origin: str) -> Path:
        program.chmod(0o755)
        tree = (
            program.parent / debian_packages.TREE if tool.debian and tool.debian.launcher else None
        )
        version = program_version(program, tool)
        # A distribution has one version of a program and not the one that we would choose.
        fits = tool.accepts(version or "") if tool.debian else version == tool.version
        if not fits:
            raise ToolError(
                f"{tool.name} ({origin}) says it is version {version or 'unknown'}, not "
                f"{tool.version}: not used"
            )
        return self.cache.install(tool, self.platform, program, origin, tree)


def program_version(program: Path, tool: Tool) -> str | None:
    """The version that a program says it has; None when it does not say."""
    try:
        answer = subprocess.run(
            [program, *tool.version_arguments],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # CNI plugins say it on standard error.
    return parse_version(answer.stdout or answer.stderr) if answer.returncode == 0 else None


def _told(report: Report, step: str, line: str) -> None:
    report(step + line)


def _module(tool: Tool) -> str:
    return tool.module
