"""How a client's connection behaves: the options of its gRPC channel."""

from __future__ import annotations

from replica import __version__

__all__ = ["DEFAULT_ADDRESS", "OPTIONS"]

DEFAULT_ADDRESS = "127.0.0.1:7600"
"""Where a replica listens unless told otherwise."""

OPTIONS: tuple[tuple[str, int | str], ...] = (
    # A page holds at least one entry, and the fold of many concurrent writes is larger than any one of them.
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    # The replica decides what is too large for it, and says so.
    ("grpc.max_send_message_length", -1),
    # A half-open connection goes unnoticed without pings; one without calls needs none.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A replica that restarts is found again soon, and by each client on its own.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.use_local_subchannel_pool", 1),
    # The replica is beside its agents; a proxy for the web is not on the way.
    ("grpc.enable_http_proxy", 0),
    ("grpc.primary_user_agent", f"ricordo/{__version__}"),
)
