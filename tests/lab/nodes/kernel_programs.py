"""What is loaded into the kernel of this machine by way of bpf()."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from contextlib import closing

from lab.hosts.network import Network

_CALL = {"x86_64": 321, "aarch64": 280}
_NEXT = 11
_BY_ID = 13
_INFO = 15
_QUERY = 16
_PACKETS = (46, 47)
"""What comes in and what goes out at an interface."""
_MOST = 64
_SIZE = 232
_NAME = slice(64, 80)
"""Of a program's name in its `struct bpf_prog_info`."""


def loaded() -> dict[int, str]:
    """The names of all programs by their number; those of Cilium begin with `cil_` or `tail_`."""
    found, number = {}, 0
    while (number := _next(number)) is not None:
        try:
            program = _call(_BY_ID, struct.pack("III", number, 0, 0))[0]
        except OSError:
            # Gone meanwhile.
            continue
        try:
            found[number] = _name(program)
        finally:
            os.close(program)
    return found


def attached(pid: int) -> set[int]:
    """The numbers of those that see packets at the interfaces in the network of a process.

    None where the kernel attaches them in a way of before version 6.6, which cannot be asked.
    """

    def look() -> set[int]:
        indexes = [index for index, _ in socket.if_nameindex()]
        return {n for index in indexes for kind in _PACKETS for n in _at(index, kind)}

    with closing(Network(pid)) as network:
        return network._inside(look)


def _at(interface: int, kind: int) -> list[int]:
    numbers = (ctypes.c_uint32 * _MOST)()
    asked = struct.pack("IIIIQI", interface, kind, 0, 0, ctypes.addressof(numbers), _MOST)
    try:
        answer = _call(_QUERY, asked)[1]
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENODEV):
            return []
        raise
    return list(numbers[: struct.unpack_from("I", answer, 24)[0]])


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
