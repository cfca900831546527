"""`ricordo serve`: one replica in this process, from its configuration to its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

from replica import __version__
from replica.config import Config
from replica.core.errors import Refused
from replica.core.storage import StorageError
from replica.logs import configure_logs, is_human, logger
from replica.server.listener import Unbindable
from replica.server.replica import Replica

__all__ = ["serve"]

_FAILED = 1


def serve(config: Config) -> int:
    """Serve until SIGTERM or SIGINT; a second one ends the process at once.

    0: stopped as asked. 1: it could not start; standard error says why, in one line.
    """
    configure_logs(config.log.level, config.log.format)
    try:
        asyncio.run(_serve(config))
    except (StorageError, Unbindable, Refused) as error:
        print(f"ricordo: {error}", file=sys.stderr)
        return _FAILED
    return 0


async def _serve(config: Config) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def signalled(number: int) -> None:
        if stop.is_set():
            # What was acknowledged is on disk; what was not is not promised.
            os._exit(128 + number)
        logger().info("stopping", signal=signal.Signals(number).name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number)
    async with Replica.serving(config) as replica:
        facts = {
            "cluster": replica.runtime.identity.cluster,
            "data_dir": str(config.data_dir.absolute()),
            "listen": replica.listen_address,
            "replication_listen": replica.replication_address,
        }
        if not _one_stream():
            logger().info("serving", **facts)
        # Whoever was to read it may have gone: that is no reason to stop.
        with suppress(OSError):
            print(_announcement(config, facts), flush=True)
        await stop.wait()


def _one_stream() -> bool:
    """Whether the log goes where the announcement goes: then it need not say the same."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):
        return False


def _announcement(config: Config, facts: Mapping[str, str]) -> str:
    """Where its data lives and where it is reached: for people on a terminal, else a JSON object."""
    if not is_human(config.log.format, sys.stdout):
        return json.dumps({"event": "serving", "version": __version__, "pid": os.getpid(), **facts})
    peers = ", ".join(f"{cluster} at {address}" for cluster, address in config.peers.items()) or "none"
    return "\n".join(
        (
            f"Ricordo {__version__} serves the cluster {facts['cluster']}",
            f"  its data lives in  {facts['data_dir']}",
            f"  clients            {facts['listen']}",
            f"  replication        {facts['replication_listen']}",
            f"  peers configured   {peers}",
            "Ctrl-C stops it.",
        )
    )
