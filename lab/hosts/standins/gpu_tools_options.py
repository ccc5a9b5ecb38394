"""The command line of `nvidia_gpu_tools.py` as far as it is simulated; all else is refused."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NoReturn

_MODES = {"set_cc_mode": ("off", "on", "devtools"), "set_ppcie_mode": ("off", "on")}


@dataclass(frozen=True, slots=True)
class Options:
    """One command line, by the real options' names."""

    devices: str | None
    log: str
    reset_with_sbr: bool
    reset_with_flr: bool
    reset_with_os: bool
    query_ecc_state: bool
    query_cc_mode: bool
    query_ppcie_mode: bool
    query_mig_mode: bool
    query_module_name: bool
    query_l4_serial_number: bool
    set_cc_mode: str | None
    set_ppcie_mode: str | None
    clear_memory: bool
    force_ecc_on_after_reset: bool
    force_mig_off_after_reset: bool
    block_all_nvlinks: bool
    knobs_reset_to_defaults: list[str] | None
    knobs_reset_to_defaults_list: bool
    noop: bool

    @property
    def gpu_only(self) -> bool:
        """Whether something is asked that the tool asks of GPUs before it looks whether they work."""
        return bool(
            self.query_ecc_state
            or self.query_cc_mode
            or self.query_mig_mode
            or self.query_l4_serial_number
            or self.set_cc_mode
            or self.clear_memory
            or self.force_ecc_on_after_reset
            or self.force_mig_off_after_reset
        )


class UsageError(Exception):
    """The tool prints this and ends: the help, or what is wrong with the command line."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        super().__init__()
        self.code, self.stdout, self.stderr = code, stdout, stderr


class _Parser(argparse.ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(status, "", message or "")


def parse(arguments: Sequence[str]) -> Options:
    """Read a command line; `UsageError` holds what the tool prints instead of running."""
    parser = _Parser(prog="nvidia_gpu_tools.py", epilog="(stand-in of a simulated host)")
    parser.add_argument("--devices")
    levels = ("debug", "info", "warning", "error", "critical")
    parser.add_argument("--log", choices=levels, default="info")
    for name, modes in _MODES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", choices=modes)
    parser.add_argument("--knobs-reset-to-defaults", nargs="+")
    flags = [field.name for field in fields(Options) if field.type == "bool"]
    for name in flags:
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true")
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            return Options(**vars(parser.parse_args(list(arguments))))
    except UsageError as usage:
        raise UsageError(
            usage.code, out.getvalue() + usage.stdout, errors.getvalue() + usage.stderr
        ) from None
