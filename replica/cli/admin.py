"""The commands of an operator."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from replica.cli import options
from replica.cli.exits import ExitCode, Failure, usage
from replica.cli.options import connect
from replica.cli.status_views import PEER_COLUMNS, compaction_sheet, peer_row, status_sheet
from replica.cli.terminal import Terminal
from replica.cli.times import format_span
from replica.client import DEFAULT_ADDRESS, Client, MemberState

__all__ = ["compact", "peers", "status"]

TIMEOUT = "10s"


def status(
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Read every row, too: takes about half a minute for a million entries, and finds damage "
            "that nobody has come upon.",
        ),
    ] = False,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Show how a replica and its peers are.

    What it holds and what waits to be purged, and for whom; how it gets on with each peer; which members the
    fleet has; and what is wrong. Of a peer, lag is how many of its changes are missing here and behind for
    how long; skew is how far its clock is ahead. "it lacks" is what the peer has not confirmed of this
    replica's changes.

    What is not measured is shown as "not measured", in a table as a dash, in JSON as null, never as 0.

    \b
    Examples:
      ricordo status
      ricordo status --json | jq '.peers[] | {cluster, connected, lag, lag_ms}'
      ricordo status --full --timeout 2m
    """
    with connect(address, timeout) as client:
        found = client.get_status(full=full)
    Terminal(as_json).sheet(found, status_sheet(found))


def compact(
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Purge what every member has seen dead.

    Shows what was purged, what has to stay, and for whom it waits. A replica does this by itself from time to
    time.
    """
    with connect(address, timeout) as client:
        done = client.compact()
    Terminal(as_json).sheet(done, compaction_sheet(done))


peers = typer.Typer(invoke_without_command=True)
"""The commands below `ricordo peers`."""


@peers.callback()
def _peers(context: typer.Context) -> None:
    """List, add and remove the peers of a replica; retire members of the fleet.

    A peer is whom this replica pulls from: adding and removing one is between the two, and can be undone. A
    member is every replica that the fleet has ever heard of, peer of this one or not: what is forgotten and
    expired is kept until every member has seen it. So a cluster that is gone for good is removed as a peer
    and retired as a member.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@peers.command("list")
def list_peers(
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """List the peers of a replica, and how it sees each.

    Where the output is no terminal, each line has cluster, address, how it became a peer, state, lag (how
    many of its changes are missing here), behind (for how long) and clock skew with a tab between them. A
    dash stands for what is not measured.
    """
    with connect(address, timeout) as client:
        found = client.get_status()
    Terminal(as_json).listing(
        found.peers,
        PEER_COLUMNS,
        peer_row,
        nothing="no peers: add one with 'ricordo peers add CLUSTER=HOST:PORT'",
    )


@peers.command("add")
def add_peer(
    peer: Annotated[
        str,
        typer.Argument(metavar="CLUSTER=HOST:PORT", help="The peer's cluster and its replication listener."),
    ],
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Replicate from a peer, now and after every restart.

    The peer has to be told of this replica likewise.

    \b
    Example: eu and us, both ways
      ricordo peers add us=127.0.0.1:7710 --address 127.0.0.1:7600
      ricordo peers add eu=127.0.0.1:7700 --address 127.0.0.1:7610
    """
    cluster, equals, listener = options.text("PEER", peer).partition("=")
    if not equals or not cluster:
        raise usage("must be written CLUSTER=HOST:PORT, such as us=127.0.0.1:7700", field="PEER")
    with connect(address, timeout) as client:
        added = client.add_peer(cluster, listener)
    if added:
        said = f"added {cluster} at {listener}; not connected yet: 'ricordo peers list' shows when it is"
    else:
        said = f"{cluster} at {listener} is a peer already: 'ricordo peers list' shows how it is"
    Terminal(as_json).line({"cluster": cluster, "address": listener, "added": added}, said)


@peers.command("remove")
def remove_peer(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The peer's cluster.")],
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Replicate from a peer no longer.

    What came from it stays, and it stays a member of the fleet: what is forgotten is still kept until it has
    seen that, too. If its cluster is gone for good, retire it as well. Exits with 3 if there is no such peer.
    """
    with connect(address, timeout) as client:
        removed = client.remove_peer(options.text("CLUSTER", cluster))
    terminal = Terminal(as_json)
    if not removed:
        if as_json:
            terminal.write_json({"cluster": cluster, "removed": False})
        raise Failure(
            ExitCode.NOT_FOUND, "no such peer", field="CLUSTER", remedy="'ricordo peers list' lists them"
        )
    terminal.line({"cluster": cluster, "removed": True}, f"no longer replicating from {cluster}")
    if not as_json:
        terminal.note(
            f"{cluster} stays a member of the fleet, and purges wait for it; if it is gone for good, "
            f"give it up with 'ricordo peers retire {cluster}'"
        )


@peers.command("retire")
def retire_member(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The member's cluster.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Give up a member of the fleet for good.

    For a cluster that is gone and will not come back. From now on no purge waits for it, here and on every
    replica that hears of this. It cannot be undone, and its name cannot be used again: give a replacement
    another one. What only it had, and had not sent to any other replica, is lost with it.

    Should it come back all the same, nothing breaks: what only it had is taken, what was forgotten meanwhile
    does not return, but its store has to be compared with another one after every purge.

    Removing a peer is another thing, between two replicas; do that, too. Exits with 3 if there is no such
    member, with 6 while it is connected.

    \b
    Example: ap is gone
      ricordo peers retire ap
      ricordo peers remove ap
    """
    named = options.text("CLUSTER", cluster)
    terminal = Terminal(as_json)
    with connect(address, timeout) as client:
        if not yes:
            _confirm(client, named, terminal)
        retired = client.retire_member(named)
    said = f"{'retired' if retired else 'already retired'}: {cluster}; no purge waits for it"
    terminal.line({"cluster": cluster, "retired": retired}, said)


def _confirm(client: Client, cluster: str, terminal: Terminal) -> None:
    """Say whom it is about, and ask. Raises Failure unless the answer is yes."""
    if not sys.stdin.isatty():
        raise usage("must be given where nobody can be asked", field="--yes")
    status = client.get_status()
    known = next((member for member in status.members if member.cluster == cluster), None)
    if known is None or known.state is MemberState.RETIRED:
        # The replica says what is to be said.
        return
    if known.heard_ms is None:
        heard = "was never heard"
    else:
        heard = f"was last heard {format_span(max(0, status.now_ms - known.heard_ms))} ago"
    terminal.note(f"{cluster} {heard}. Retiring it is for good, in the whole fleet.")
    terminal.note("What it wrote and no other replica has received is lost with it.")
    if not typer.confirm(f"Retire {cluster}?", err=True):
        raise Failure(ExitCode.REFUSED, "nothing was changed")
