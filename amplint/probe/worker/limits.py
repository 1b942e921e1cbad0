"""What the operating system does not let a run do.

Who calls what, in which process:

- `isolate` is called by the boot code of `amplint.probe.process`, in the new worker process,
  before anything else is imported: no network, no view of other processes.
- `confine` is called by `amplint.probe.worker.serve`, in the forked child of each run, before
  any code of the user: memory, time, files, no processes, no sockets, writes only to scratch.
- `clear_descendants` is called by `amplint.probe.worker.serve`, in the worker, after each run:
  nothing that the run started survives it.

This protects against accidents, and is no jail for hostile code: what a kernel does not offer
is left out, and the names of the measures in force are returned so that a report can tell.
Linux has all of them; elsewhere only the resource limits remain. Standard library only.

Sources: man pages unshare(2), prctl(2), seccomp(2), landlock(7), setrlimit(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import platform
import resource
import signal
import struct
import sys

#: Memory that a run may take beyond what the warm worker has mapped, in bytes.
MEMORY = 4 << 30
#: Largest file that a run may write, in bytes.
FILE_SIZE = 1 << 20
OPEN_FILES = 128

_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 1 << 27, 1 << 28, 1 << 29, 1 << 30
_CLONE_THREAD = 1 << 16
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38


def isolate() -> tuple[str, ...]:
    """Give this process namespaces of its own; names of the measures in force.

    Must run while the process has one thread. Where process namespaces can be had, the
    caller goes on in a child that is the first process of its namespace: when it ends,
    however that happens, the kernel ends everything that was started inside. The outer
    process only waits for it.
    """
    if not sys.platform.startswith("linux"):
        return ()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if _unshare(_CLONE_NEWNET | _CLONE_NEWPID | _CLONE_NEWIPC):
        _continue_in_child()
        return ("network namespace", "process namespace")
    if _unshare(_CLONE_NEWNET):
        return ("network namespace",)
    return ()


def confine(scratch: str, seconds: float, *, device: str = "cpu") -> tuple[str, ...]:
    """Limit this process, for good; names of the measures in force.

    The process becomes the leader of its own process group, so that it can be killed with
    everything that shares it.

    Args:
        scratch: the only folder that can be written to.
        seconds: CPU time after which the kernel ends the process, rounded up.
        device: on a GPU address space and threads are not limited, because its driver maps
            and starts more than any sensible limit.
    """
    with contextlib.suppress(PermissionError):  # a leader already
        os.setpgid(0, 0)
    on_gpu = device != "cpu"
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    _limit(resource.RLIMIT_FSIZE, FILE_SIZE)
    _limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    if not on_gpu:
        _limit(resource.RLIMIT_AS, _mapped() + MEMORY)
        _limit(resource.RLIMIT_NPROC, 0)  # the kernel does not apply it to root
    measures = ["resource limits"]
    if sys.platform.startswith("linux"):
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if _forbid_writes(scratch, on_gpu=on_gpu):
            measures.append("landlock")
        if _forbid_calls():
            measures.append("seccomp")
    return tuple(measures)


def clear_descendants() -> None:
    """Kill and reap everything that earlier runs left behind in the worker."""
    if os.getpid() == 1:  # the first process of its namespace: see `isolate`
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
    else:
        for pid in _children(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _continue_in_child() -> None:
    """Fork; the parent waits for the child and ends with its status."""
    pid = os.fork()
    if pid == 0:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    for descriptor in (0, 1):  # or nobody would notice that the child is gone
        os.close(descriptor)
    _, status = os.waitpid(pid, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _unshare(flags: int) -> bool:
    """Leave namespaces; as an ordinary user inside a user namespace of its own."""
    if _libc().unshare(flags) == 0:
        return True
    user, group = os.getuid(), os.getgid()
    if _libc().unshare(flags | _CLONE_NEWUSER) != 0:
        return False
    with contextlib.suppress(OSError):  # unmapped ids read files all the same, as "nobody"
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    return True


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as stream:
        stream.write(text)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS knows no RLIMIT_AS
        resource.setrlimit(kind, (value, value))


def _mapped() -> int:
    """Bytes of address space in use; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as stream:
            return int(stream.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _children(pid: int) -> list[int]:
    """Direct children of a process; orphans have become children of the subreaper."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
            return [int(word) for word in stream.read().split()]
    except OSError:
        return []


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> bool:
    return bool(_libc().prctl(option, value, 0, 0, 0) == 0)


# ---- landlock(7): writes only beneath the scratch folder --------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all architectures
_WRITE_FILE = 1 << 1
#: remove_dir, remove_file, make_char, make_dir, make_reg, make_sock, make_fifo, make_block,
#: make_sym: bits 4 to 12.
_CHANGE_TREE = sum(1 << bit for bit in range(4, 13))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def _forbid_writes(scratch: str, *, on_gpu: bool) -> bool:
    call = _libc().syscall
    version = call(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = _WRITE_FILE | _CHANGE_TREE
    rights |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("=Q", rights)
    if version >= 4:
        attributes += struct.pack("=Q", _BIND_AND_CONNECT)
    if version >= 6:
        attributes += struct.pack("=Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
    ruleset = call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    try:
        _allow(ruleset, scratch, rights)
        _allow(ruleset, "/dev" if on_gpu else os.devnull, _WRITE_FILE)
        return bool(call(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _libc().syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


# ---- seccomp(2): no processes, no sockets, no signals to others ---------------------------

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16

#: Numbers of system calls by machine: those that fail, then the ones that are looked at.
_CALLS = {
    "x86_64": (
        0xC000003E,
        # socket fork vfork execve execveat ptrace tkill rt_sigqueueinfo pidfd_send_signal
        # unshare setns mount process_vm_writev io_uring_setup
        (41, 57, 58, 59, 322, 101, 200, 129, 424, 272, 308, 165, 311, 425),
        {"clone": 56, "clone3": 435, "kill": 62, "tgkill": 234},
    ),
    "aarch64": (
        0xC00000B7,
        # socket execve execveat ptrace tkill rt_sigqueueinfo pidfd_send_signal unshare setns
        # mount process_vm_writev io_uring_setup
        (198, 221, 281, 117, 130, 138, 424, 97, 268, 40, 271, 425),
        {"clone": 220, "clone3": 435, "kill": 129, "tgkill": 131},
    ),
}


def _forbid_calls() -> bool:
    known = _CALLS.get(platform.machine())
    if known is None:
        return False
    architecture, forbidden, looked_at = known
    refuse = _ERROR | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for number in forbidden:
        program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    # The C library falls back to `clone`, whose flags a filter can see.
    program += [(_EQUAL, 0, 1, looked_at["clone3"]), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    program += _only_if(looked_at["clone"], _ANY_BIT, _CLONE_THREAD)
    program += _only_if(looked_at["kill"], _EQUAL, os.getpid())
    program += _only_if(looked_at["tgkill"], _EQUAL, os.getpid())
    program += [(_RETURN, 0, 0, _ALLOW)]
    code = b"".join(struct.pack("=HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("@HP", len(program), ctypes.addressof(buffer))
    return bool(_libc().prctl(_PR_SET_SECCOMP, 2, header, 0, 0) == 0)


def _only_if(number: int, test: int, value: int) -> list[tuple[int, int, int, int]]:
    """Allow a call if its first argument passes a test, refuse it otherwise."""
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (test, 1, 0, value),
        (_RETURN, 0, 0, _ERROR | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
