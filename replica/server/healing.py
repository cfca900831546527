"""Damaged registers, fetched again from peers (DESIGN section 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from replica.core.damage import damaged_keys, heal, note_damage
from replica.core.messages import Fetched, ProtocolError
from replica.core.storage import StorageError
from replica.logs import logger
from replica.server.asking import fetch
from replica.server.peer_book import PeerBook
from replica.server.runtime import Runtime
from replica.wire.answers import key_text

__all__ = ["Healer"]

_MOST = 100
"""Registers fetched at a time."""
_SECONDS = 10.0
"""How long a peer has to answer."""
_AGAIN = 30.0
"""Seconds after which those that could not be healed are tried again."""

_log = logger()


class Healer:
    """Fetches damaged registers again."""

    def __init__(self, runtime: Runtime, book: PeerBook) -> None:
        self._runtime = runtime
        self._book = book
        self._stir = asyncio.Event()
        self._found: set[bytes] = set()

    def found(self, keys: Iterable[bytes]) -> None:
        """The rows at these keys, or some of them, are damaged."""
        self._found.update(keys)
        if self._found:
            self._stir.set()

    async def run(self) -> None:
        """Heal what is found, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN):
                    await self._stir.wait()
            self._stir.clear()
            try:
                await self._heal()
            except StorageError as error:
                _log.error("the store refuses", reason=str(error))

    async def _heal(self) -> None:
        if self._found:
            keys, self._found = tuple(self._found), set()
            noted = await self._runtime.write(lambda transaction: note_damage(transaction, keys))
            for key in noted:
                _log.error("a row is damaged", key=key_text(key))
        with self._runtime.snapshot() as snapshot:
            damaged = damaged_keys(snapshot)[:_MOST]
        addresses = self._book.addresses()
        if not damaged or not addresses:
            return
        answers = await asyncio.gather(*(fetch(address, damaged, _SECONDS) for address in addresses.values()))
        asked = [answer for answer in answers if answer is not None]
        for key in damaged:
            found = [one for answer in asked for one in answer if one.key == key]
            await self._heal_one(key, found, everyone=len(asked) == len(addresses))

    async def _heal_one(self, key: bytes, found: list[Fetched], *, everyone: bool) -> None:
        try:
            healed = await self._runtime.write(
                lambda transaction: heal(transaction, key, found, everyone=everyone)
            )
        except ProtocolError as error:
            _log.error("a row could not be healed", key=key_text(key), reason=error.reason)
            return
        if healed:
            _log.warning("healed a damaged row", key=key_text(key))
