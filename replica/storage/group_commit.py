"""Group commit: concurrent writes share one durable transaction.

A flush to disk takes as long for a hundred writes as for one. So the event loop collects writes while one
thread commits, and what has come together by the end of a commit goes into the next. A write is answered only
when it is on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from replica.core.storage import Storage, StorageClosed, StorageError, StorageFull, Transaction

__all__ = ["GroupCommit"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


class GroupCommit:
    """Runs pieces of work on a store, many in one transaction, in the order in which they were submitted.

    It belongs to the event loop that submits, and takes the store's turn to write only to commit.
    """

    def __init__(self, storage: Storage, *, max_batch: int = 256, max_waiting: int = 1024) -> None:
        """At most `max_batch` pieces of work share a transaction; at most `max_waiting` wait for theirs.

        Submissions beyond that wait, in order, for room: a caller is slowed down to the speed of the disk.
        """
        self._storage = storage
        self._max_batch = max_batch
        self._room = asyncio.Semaphore(max_waiting)
        self._waiting: deque[_Piece] = deque()
        self._callers = 0
        """How many submissions have not been answered, those that wait for room included."""
        self._committing = False
        """Whether a batch is at the thread, or about to be taken there."""
        self._idle = asyncio.Event()
        """Set when there are neither callers nor a batch."""
        self._idle.set()
        self._closing = False
        self._callbacks: list[Callable[[], None]] = []
        self.transactions = 0
        """How many transactions that wrote something were committed."""
        self.writes = 0
        """How many pieces of work they held that wrote something."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="group-commit")

    async def submit(self, work: Callable[[Transaction], T]) -> T:
        """Run `work` in a durable transaction, shared with others, and return what it returned.

        `work` runs in another thread and may run more than once, so its only effects are those on the
        transaction. If it raises, nothing of it is written, the exception comes out here, and the others are
        not affected. Raises StorageFull or another StorageError if it could not be committed, StorageClosed
        after :meth:`close`.

        Cancelled before its transaction begins, it is never run; later, it may be committed all the same.
        """
        if self._closing:
            raise StorageClosed("the replica is stopping and takes no more writes")
        answer: list[T] = []

        def run(transaction: Transaction) -> None:
            answer[:] = [work(transaction)]

        self._callers += 1
        self._idle.clear()
        try:
            await self._room.acquire()
            piece = _Piece(run, asyncio.get_running_loop().create_future())
            self._waiting.append(piece)
            if not self._committing:
                self._begin_soon()
            await piece.done
        finally:
            self._callers -= 1
            self._note_idle()
        return answer[0]

    def on_commit(self, callback: Callable[[], None]) -> None:
        """Have `callback` called, in the event loop, after every commit that wrote something."""
        self._callbacks.append(callback)

    async def close(self) -> None:
        """Refuse new work, wait until all that was submitted is done, and end the thread.

        The store stays open.
        """
        self._closing = True
        await self._idle.wait()
        self._thread.shutdown()

    # In the event loop.

    def _begin_soon(self) -> None:
        # Not at once: what else is submitted in this round of the loop comes along.
        self._committing = True
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        batch: list[_Piece] = []
        while self._waiting and len(batch) < self._max_batch:
            piece = self._waiting.popleft()
            self._room.release()
            if not piece.done.cancelled():
                batch.append(piece)
        if batch:
            self._thread.submit(self._commit, batch, asyncio.get_running_loop())
        else:
            self._end()

    def _end(self) -> None:
        if self._waiting:
            self._begin_soon()
        else:
            self._committing = False
            self._note_idle()

    def _note_idle(self) -> None:
        if not self._callers and not self._committing:
            self._idle.set()

    def _answer(self, answers: Sequence[tuple[_Piece, BaseException | None]], wrote: int) -> None:
        """Answer those who wait; so many of them wrote something, in one transaction."""
        for piece, error in answers:
            piece.answer(error)
        if wrote:
            self.transactions += 1
            self.writes += wrote
            for callback in self._callbacks:
                try:
                    callback()
                except Exception:  # noqa: BLE001 - logged, and the next one is called
                    # The write is durable: nothing may fail its caller any more.
                    _log.exception("a callback failed after a commit")

    # In the thread.

    def _commit(self, batch: list[_Piece], loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._write(batch, loop)
        except BaseException as error:  # noqa: BLE001 - logged, and told to everyone who waits
            _log.exception("the writer failed")
            failure = StorageError("the writer failed, and whether anything was written is not known")
            failure.__cause__ = error
            # Those that are answered already are not answered again.
            loop.call_soon_threadsafe(self._answer, [(piece, failure) for piece in batch], 0)
        finally:
            loop.call_soon_threadsafe(self._end)

    def _write(self, pieces: list[_Piece], loop: asyncio.AbstractEventLoop) -> None:
        """Commit `pieces` together, or, where they do not fit, in parts."""
        spoilt: set[_Piece] = set()
        while True:
            try:
                wrote = self._storage.run(partial(_run_all, pieces, spoilt))
            except _Spoilt as error:
                spoilt.add(error.piece)
                continue
            except StorageFull as error:
                if len(pieces) > 1:
                    # One that is too large must not fail the others.
                    middle = len(pieces) // 2
                    self._write(pieces[:middle], loop)
                    self._write(pieces[middle:], loop)
                    return
                pieces[0].error = error
                wrote = 0
            except StorageError as error:
                for piece in pieces:
                    piece.error = error
                wrote = 0
            answers = [(piece, piece.error) for piece in pieces]
            loop.call_soon_threadsafe(self._answer, answers, wrote)
            return


class _Piece:
    """One submission: what to run, and who waits for it."""

    __slots__ = ("done", "error", "run")

    def __init__(self, run: Callable[[Transaction], None], done: asyncio.Future[None]) -> None:
        self.run = run
        self.done = done
        self.error: BaseException | None = None
        """Why nothing of it is written, as of the last attempt; the thread's."""

    def answer(self, error: BaseException | None) -> None:
        """Tell whoever waits, unless it is told already or has gone."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class _Spoilt(Exception):
    """A piece failed after it had written: the transaction must be aborted and done again without it."""

    def __init__(self, piece: _Piece) -> None:
        super().__init__()
        self.piece = piece


def _run_all(pieces: list[_Piece], spoilt: set[_Piece], transaction: Transaction) -> int:
    """Run all `pieces` but the `spoilt` ones, keep their errors, and return how many wrote something."""
    wrote = 0
    for piece in pieces:
        if piece in spoilt:
            continue
        piece.error = None
        writes = transaction.writes
        try:
            piece.run(transaction)
        except StorageFull:
            raise
        except Exception as error:
            # A future does not take this one.
            piece.error = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error
            if transaction.writes != writes:
                raise _Spoilt(piece) from error
        wrote += transaction.writes != writes
    return wrote
