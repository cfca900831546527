"""One Ricordo replica: its core, storage, wire format, servers, clients, command line and simulator.

The layers import only downwards: `core` rests on `crdt`, `storage` and `wire` on `core`, and `server`, `client` and `cli` on
those. Everything below the servers is a pure function of its arguments; time, randomness and input and output come in.
"""

from importlib.metadata import version

__all__ = ["__version__"]

__version__ = version("ricordo")
"""The version of the installed distribution."""
