"""Runs commands in isolated views: the host's root folder is `/`, the machine is out of sight.

A small process of its own (`python -I -S view.py FD`), which the hosts' server starts once and
which forks for every command: forking a small process costs a tenth of starting Python anew, and
namespaces cannot be entered safely from a process that runs an event loop. It uses the standard
library alone.

Each request on the socket FD carries five descriptors: the request (JSON in a memory file), the
command's standard input, output and error, and a socket that receives `{"pid": …}` and then
`{"exit": …}` or `{"error": …}`; a sixth is the network that the command runs in. Killing that pid kills
all that the command started: it is the parent of a pid namespace. Commands that a host's command
leaves in the background end with it.
"""

import array
import ctypes
import errno
import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
SYS_MOUNT_SETATTR = 442
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38

# What root on a host may do with its own files and processes. Left out on purpose: making device
# nodes, mounting, tracing, loading modules, setting the clock, raw I/O: those reach the machine.
KEPT_CAPABILITIES = {
    0,  # CHOWN
    1,  # DAC_OVERRIDE
    2,  # DAC_READ_SEARCH
    3,  # FOWNER
    4,  # FSETID
    5,  # KILL
    6,  # SETGID
    7,  # SETUID
    10,  # NET_BIND_SERVICE
    18,  # SYS_CHROOT
    31,  # SETFCAP
}
MASKED = ("sysrq-trigger", "kcore", "kmsg", "timer_list", "keys", "latency_stats", "sched_debug")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    encoded = [None if s is None else os.fsencode(s) for s in (source, target, kind, data)]
    _check(
        _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]),
        f"mount {source or kind} on {target}",
    )


def _bind(source: str, target: str, flags: int) -> None:
    """Bind `source` and all below it to `target`, with these restrictions on all of it."""
    _mount(source, target, None, MS_BIND | MS_REC)
    if not flags:
        return
    attributes = (ctypes.c_uint64 * 4)(flags, 0, 0, 0)
    result = _libc.syscall(
        SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(target), AT_RECURSIVE, attributes, 32
    )
    if result == 0:
        return
    if ctypes.get_errno() != errno.ENOSYS:
        _check(result, f"restrict {target}")
    # Kernels before 5.12: the older call has the same flag values but does not recurse.
    _mount(None, target, None, MS_REMOUNT | MS_BIND | flags)


def _fill(path: str) -> int:
    """Put a full file system on a folder, with the folder's files in it.

    Returns a descriptor that keeps the last block taken; it has to stay open as long as the view.
    """
    contents: list[tuple[str, os.stat_result, bytes]] = []
    for entry in os.scandir(path):
        if entry.is_file(follow_symlinks=False):
            with open(entry.path, "rb") as file:  # noqa: PTH123 (pathlib costs start-up time)
                contents.append((entry.path, entry.stat(), file.read()))
    pages = sum(-(-len(data) // 4096) for _, _, data in contents) + 1
    mode = os.stat(path).st_mode & 0o7777  # noqa: PTH116
    _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"size={pages * 4096},mode={mode:o}")
    for name, stat, data in contents:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT, stat.st_mode & 0o7777)
        os.write(descriptor, data)
        os.fchown(descriptor, stat.st_uid, stat.st_gid)
        os.close(descriptor)
    last = os.open(path + "/.full", os.O_WRONLY | os.O_CREAT, 0o600)
    os.unlink(path + "/.full")  # noqa: PTH108
    try:
        while os.write(last, b"\0" * 4096):
            pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    return last


def _pivot(root: str) -> None:
    os.chdir(root)
    number = SYS_PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"no simulated hosts on {os.uname().machine} machines")
    _check(_libc.syscall(number, b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", MNT_DETACH), "leave the machine's file system")
    os.chdir("/")


def _build(request: dict[str, Any]) -> list[int]:
    """Make the view in this process's fresh mount namespace; returns descriptors to keep open."""
    root = request["root"]
    _mount(None, "/", None, MS_REC | MS_PRIVATE)
    _bind(root, root, MS_NOSUID | MS_NODEV)
    for source, target in request["read_only"]:
        _bind(source, root + target, MS_RDONLY | MS_NOSUID)
    for source, target in request["devices"]:
        _bind(source, root + target, 0)
    proc = root + "/proc"
    _mount("proc", proc, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _bind(proc + "/sys", proc + "/sys", MS_RDONLY)
    for name in MASKED:
        if os.path.exists(f"{proc}/{name}"):  # noqa: PTH110
            _bind(root + "/dev/null", f"{proc}/{name}", 0)
    for source, target in request["proc"]:
        if os.path.exists(root + target):  # noqa: PTH110
            _bind(source, root + target, MS_RDONLY)
    keep = [_fill(root + path) for path in request["full"]]
    _pivot(root)
    hostname = os.fsencode(request["hostname"])
    _check(_libc.sethostname(hostname, len(hostname)), "set the host name")
    return keep


def _exec(request: dict[str, Any], streams: list[int]) -> NoReturn:
    """Become the command, as the host's user and with nothing of this process left."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    os.setsid()
    for capability in range(64):
        if capability not in KEPT_CAPABILITIES:
            _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if request["switch_user"]:
        os.setgroups([])
        os.setresgid(*[request["gid"]] * 3)
        os.setresuid(*[request["uid"]] * 3)
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o022)
    what = request["cwd"]
    try:
        os.chdir(what)
        what = request["argv"][0]
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606
    except OSError as error:
        text = f"{what}: {error.strerror}\n"
        os.write(2, text.encode())
        os._exit(126 if error.errno == errno.EACCES else 127)


def _init(
    request: dict[str, Any], streams: list[int], status: socket.socket, bound: int
) -> NoReturn:
    """Process 1 of the view: builds it, runs the command, reaps orphans, ends with the command.

    `bound` is told that it ends with its parent from now on.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        os.write(bound, b"!")
    except BrokenPipeError:
        os._exit(1)  # the parent is dead already, and nobody would end this one
    os.close(bound)
    try:
        keep = _build(request)
    except OSError as error:
        _send(status, error=str(error))
        os._exit(1)
    command = os.fork()
    if command == 0:
        _exec(request, streams)
    for descriptor in streams:
        os.close(descriptor)
    while True:
        pid, code = os.waitpid(-1, 0)
        if pid == command:
            break
    for descriptor in keep:
        os.close(descriptor)
    exit_code = os.waitstatus_to_exitcode(code)
    _send(status, exit=exit_code if exit_code >= 0 else 128 - exit_code)
    os._exit(0)


def _send(status: socket.socket, **message: int | str) -> None:
    status.send(json.dumps(message).encode())


def _launch(
    request: dict[str, Any], streams: list[int], status: socket.socket, network: list[int]
) -> NoReturn:
    """Parent of the view, in the machine's own pid namespace: its pid is what can be killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC
    uid, gid = os.getuid(), os.getgid()
    try:
        for descriptor in network:
            _check(_libc.setns(descriptor, CLONE_NEWNET), "enter the network of the node")
            os.close(descriptor)
        if request["user_namespace"]:
            flags |= CLONE_NEWUSER
        _check(_libc.unshare(flags), "make namespaces")
        if request["user_namespace"]:
            _map_user(uid, gid)
        is_bound, bound = os.pipe()
        init = os.fork()
    except OSError as error:
        _send(status, error=str(error))
        os._exit(1)
    if init == 0:
        os.close(is_bound)
        _init(request, streams, status, bound)
    os.close(bound)
    # Who knows the pid may kill it at once: what is below it has to end with it by then.
    os.read(is_bound, 1)
    os.close(is_bound)
    try:
        _send(status, pid=os.getpid())
    except BrokenPipeError:
        os._exit(1)  # whoever asked does not want it any more
    for descriptor in streams:
        os.close(descriptor)
    os.waitpid(init, 0)
    os._exit(0)


def _map_user(uid: int, gid: int) -> None:
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {uid} 1"),
        ("gid_map", f"0 {gid} 1"),
    ):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def main() -> None:
    """Serve requests until the other end of the socket is closed."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    me = os.getpid()
    size = array.array("i").itemsize
    while True:
        data, ancillary, _, _ = control.recvmsg(16, socket.CMSG_LEN(6 * size))
        if not data:
            return
        descriptors = array.array("i")
        for level, kind, content in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(content)
        memory, stdin, stdout, stderr, status_fd, *network = descriptors
        if os.fork() == 0:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != me:
                os._exit(1)  # it was killed before this one could hear of it
            control.close()
            with os.fdopen(memory) as file:
                file.seek(0)
                request = json.load(file)
            status = socket.socket(fileno=status_fd)
            _launch(request, [stdin, stdout, stderr], status, network)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    main()
