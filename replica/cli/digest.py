"""The command that says whether replicas hold the same, and where they differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import Annotated, TypeVar

import typer
from google.protobuf.message import Message

from replica.cli import options
from replica.cli.exits import ExitCode, Failure, failure_of, usage
from replica.cli.options import connect, read_time
from replica.cli.sheet import visible
from replica.cli.terminal import Terminal
from replica.cli.times import format_time
from replica.client import DEFAULT_ADDRESS, Call, Client, Difference, Digest, RicordoError, compare
from replica.client.admin import get_digest

__all__ = ["digest"]

TIMEOUT = "2m"

Result = TypeVar("Result")
Name = TypeVar("Name")


def digest(
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="The entries live at this moment: milliseconds or ISO 8601.",
            show_default="now",
        ),
    ] = None,
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="REPO", help="Only this repository.", show_default="all of them"),
    ] = None,
    topic: options.Topic = None,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--compare",
            metavar="HOST:PORT",
            help="Compare with this replica, and name the entries that differ. Repeatable.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            metavar="NUMBER",
            help="With --compare: name no more than this many.",
            show_default=False,
        ),
    ] = None,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Print a digest of the live entries, or compare replicas.

    Replicas with equal digests at one moment hold the same. The line has the digest, the number of live
    entries and the moment.

    With --compare the replicas are asked as of one moment, and each entry that they do not hold alike is
    named on a line, with what is wrong with it; with --json, its digest by cluster, null where it is missing.
    Exits with 1 if they differ. What is written meanwhile, or has not arrived yet, is a difference.

    \b
    Examples:
      ricordo digest --repo api
      ricordo digest --address 10.0.1.7:7600 --compare 10.0.2.7:7600 --compare 10.0.3.7:7600
    """
    at_ms = None if at is None else read_time("--at", at)
    if repo is None and topic is not None:
        raise usage("needs --repo", field="--topic")
    repo_id = None if repo is None else options.scope(repo, topic)[0]
    terminal = Terminal(as_json)
    if others:
        moment = time.time_ns() // 1_000_000 if at_ms is None else at_ms
        _compare((address, *others), timeout, moment, repo_id, topic, limit, terminal)
        return
    if limit is not None:
        raise usage("needs --compare", field="--limit")
    with connect(address, timeout) as client:
        found = client.get_digest(at_ms=at_ms, repo_id=repo_id, topic=topic)
    terminal.line(found, _line(found))


def _line(found: Digest) -> str:
    return f"{found.digest.hex()}  {found.live} live  at {format_time(found.at_ms)}"


def _compare(
    addresses: tuple[str, ...],
    timeout: str,
    at_ms: int,
    repo_id: str | None,
    topic: str | None,
    limit: int | None,
    terminal: Terminal,
) -> None:
    if len(set(addresses)) < len(addresses):
        raise usage("names a replica twice", field="--compare")
    with ExitStack() as stack:
        clients = {addresses[0]: stack.enter_context(connect(addresses[0], timeout))}
        for each in addresses[1:]:
            try:
                clients[each] = stack.enter_context(connect(each, timeout))
            except Failure as failure:
                failure.field = "--compare"
                raise
        crew = stack.enter_context(ThreadPoolExecutor(len(clients)))
        call = get_digest(at_ms=at_ms, repo_id=repo_id, topic=topic)
        digests = _ask(crew, {each: (each, client, call) for each, client in clients.items()})
        names = _names(digests)
        if len(set(digests.values())) == 1:
            if not terminal.as_json:
                print(f"{_line(digests[addresses[0]])}  in {', '.join(names.values())}")
            return
        at = {name: each for each, name in names.items()}
        differences = compare(
            lambda calls: _ask(
                crew, {name: (at[name], clients[at[name]], call) for name, call in calls.items()}
            ),
            {names[each]: found.live for each, found in digests.items()},
            at_ms=at_ms,
            repo_id=repo_id,
            topic=topic,
        )
        _report(differences, limit, terminal)


def _ask(
    crew: ThreadPoolExecutor, calls: Mapping[Name, tuple[str, Client, Call[Message, Result]]]
) -> dict[Name, Result]:
    """Make all calls at once, each to a replica at an address."""

    def ask(address: str, client: Client, call: Call[Message, Result]) -> Result:
        try:
            return client.run(call)
        except RicordoError as error:
            raise failure_of(error, address) from error

    asked = {name: crew.submit(ask, *given) for name, given in calls.items()}
    return {name: future.result() for name, future in asked.items()}


def _names(digests: Mapping[str, Digest]) -> dict[str, str]:
    """What each replica is called, by its address: its cluster, if no other is of the same."""
    clusters = [found.cluster for found in digests.values()]
    return {
        address: found.cluster if clusters.count(found.cluster) == 1 else f"{found.cluster} at {address}"
        for address, found in digests.items()
    }


def _report(differences: Iterator[Difference], limit: int | None, terminal: Terminal) -> None:
    count = 0
    show: Callable[[Difference], None] = terminal.write_json if terminal.as_json else _show
    for difference in islice(differences, limit):
        show(difference)
        count += 1
    if not count:
        terminal.note("the digests differed, and no entry does by now: a write has arrived meanwhile")
        return
    more = "more than " if count == limit and next(differences, None) is not None else ""
    raise Failure(
        ExitCode.REFUSED,
        f"the replicas differ in {more}{count} {'entry' if count == 1 else 'entries'}",
        remedy="what is on its way arrives by itself; 'ricordo status' shows what a replica waits for",
    )


def _show(difference: Difference) -> None:
    print(f"{visible(difference.key)}\t{_said(difference)}")


def _said(difference: Difference) -> str:
    """What is wrong with an entry."""
    holding: dict[bytes, list[str]] = {}
    missing = []
    for name, found in difference.digests.items():
        if found is None:
            missing.append(name)
        elif name not in difference.damaged:
            holding.setdefault(found, []).append(name)
    said = []
    if len(holding) > 1:
        said.append(f"different in {' and '.join(', '.join(alike) for alike in holding.values())}")
    if missing:
        said.append(f"missing in {', '.join(missing)}")
    if difference.damaged:
        said.append(f"damaged in {', '.join(difference.damaged)}")
    return "; ".join(said)
