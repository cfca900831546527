"""kill -9 at a chosen moment: while the store is being written."""

from __future__ import annotations

import os
import platform
import signal
import time
from pathlib import Path

__all__ = ["kill_while_writing"]

_WRITES = {
    # pwrite64, pwritev, fsync, fdatasync, msync
    "x86_64": {18, 296, 74, 75, 26},
    "aarch64": {68, 70, 82, 83, 227},
}


def kill_while_writing(pid: int, data: Path, patience: float) -> bool:
    """Kill the process when one of its threads is seen in a call that writes or flushes its store.

    Where that cannot be seen, or is not within so many seconds, it is killed all the same; then the result
    is False.
    """
    writes = _WRITES.get(platform.machine(), set())
    ends = time.monotonic() + patience
    seen = False
    try:
        files = _files(pid, data / "data.mdb")
        while not seen and writes and time.monotonic() < ends:
            for thread in os.listdir(f"/proc/{pid}/task"):
                number, _, rest = _call(pid, thread).partition(" ")
                if number.isdigit() and int(number) in writes:
                    seen = int(rest.split(" ", 1)[0], 16) in files
                    break
    except OSError:
        pass  # It may not be looked at, or a thread has ended.
    os.kill(pid, signal.SIGKILL)
    return seen


def _call(pid: int, thread: str) -> str:
    """The system call that a thread is in: its number and arguments; ``running`` when it is in none."""
    with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as file:
        return file.read()


def _files(pid: int, path: Path) -> set[int]:
    """The descriptors under which a process has a file open."""
    place = f"/proc/{pid}/fd"
    return {int(name) for name in os.listdir(place) if os.readlink(f"{place}/{name}") == str(path)}
