"""What is loaded into the kernel of this machine by way of bpf()."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import threading
from pathlib import Path

_CALL = {"x86_64": 321, "aarch64": 280}
_NEXT = 11
_BY_ID = 13
_INFO = 15
_QUERY = 16
_PACKETS = (46, 47)
"""What comes in and what goes out at an interface."""
_MOST = 64
_CLONE_NEWNET = 0x40000000
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
    found: list[set[int]] = []

    def look() -> None:
        with Path(f"/proc/{pid}/ns/net").open("rb") as space:
            _enter(space.fileno())
        indexes = [index for index, _ in socket.if_nameindex()]
        found.append({n for index in indexes for kind in _PACKETS for n in _at(index, kind)})

    # Of a thread of its own: a network is entered for good.
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    (numbers,) = found
    return numbers


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


def _enter(space: int) -> None:
    """Enter a network, which Python itself can from 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(space, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


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
