"""What is loaded into the kernel of this machine by way of bpf()."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_CALL = {"x86_64": 321, "aarch64": 280}
_NEXT = 11
_BY_ID = 13
_INFO = 15
_SIZE = 232
_NAME = slice(64, 80)
"""Of a program's name in its `struct bpf_prog_info`."""


def names() -> list[str]:
    """The names of all programs; those of Cilium begin with `cil_` or `tail_`."""
    found, number = [], 0
    while (number := _next(number)) is not None:
        try:
            program = _call(_BY_ID, struct.pack("III", number, 0, 0))[0]
        except OSError:
            # Gone meanwhile.
            continue
        try:
            found.append(_name(program))
        finally:
            os.close(program)
    return found


def _next(number: int) -> int | None:
    try:
        return int(struct.unpack_from("I", _call(_NEXT, struct.pack("III", number, 0, 0))[1], 4)[0])
    except FileNotFoundError:
        return None


def _name(program: int) -> str:
    info = ctypes.create_string_buffer(_SIZE)
    _call(_INFO, struct.pack("IIQ", program, _SIZE, ctypes.addressof(info)))
    return info.raw[_NAME].split(b"\0")[0].decode()


def _call(command: int, attributes: bytes) -> tuple[int, bytes]:
    libc = ctypes.CDLL(None, use_errno=True)
    given = ctypes.create_string_buffer(attributes.ljust(120, b"\0"), 120)
    done = libc.syscall(_CALL[platform.machine()], command, given, 120)
    if done < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return done, given.raw
