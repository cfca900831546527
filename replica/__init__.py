"""One Ricordo replica: its core, storage, wire format, servers, clients, command line and simulator.

The layers import only downwards: `core` rests on `crdt`, `storage` and `wire` on `core`, and `server`,
`client` and `cli` on those. What an operation means is decided in `crdt` and `core`, which are pure: time,
randomness, input and output come in as arguments.
"""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("ricordo")
"""The version of the installed distribution."""
