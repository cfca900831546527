"""The commands of an operator."""

from __future__ import annotations

from typing import Annotated

import typer

from replica.cli import options
from replica.cli.exits import ExitCode, Failure, usage
from replica.cli.options import connect
from replica.cli.terminal import Terminal
from replica.cli.views import PEER_COLUMNS, compaction_sheet, peer_row, status_sheet
from replica.client import DEFAULT_ADDRESS, PeerStatus

__all__ = ["compact", "peers", "status"]

TIMEOUT = "10s"


def status(
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Show how a replica and its peers are.

    What a replica does not measure is shown as "not measured", in JSON as null, never as 0.

    \b
    Examples:
      ricordo status
      ricordo status --json | jq '.peers[] | {cluster, connected, lag}'
    """
    with connect(address, timeout) as client:
        found = client.get_status()
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
    """List, add and remove the peers of a replica."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@peers.command("list")
def list_peers(
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """List the peers of a replica, and how it sees each."""
    with connect(address, timeout) as client:
        found = client.get_status()

    def row(peer: PeerStatus) -> tuple[str, ...]:
        return peer_row(peer, found.now_ms)

    Terminal(as_json).listing(
        found.peers, PEER_COLUMNS, row, nothing="no peers: add one with 'ricordo peers add CLUSTER=HOST:PORT'"
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
    said = f"{'replicating from' if added else 'already replicating from'} {cluster} at {listener}"
    Terminal(as_json).line({"cluster": cluster, "address": listener, "added": added}, said)


@peers.command("remove")
def remove_peer(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="The peer's cluster.")],
    address: options.Address = DEFAULT_ADDRESS,
    timeout: options.Timeout = TIMEOUT,
    as_json: options.Json = False,
) -> None:
    """Replicate from a peer no longer.

    What came from it stays. Exits with 3 if there is no such peer.
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
