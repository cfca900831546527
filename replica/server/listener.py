"""A listener: a gRPC server on one address, with health beside its services.

An address that is taken is an error: gRPC by itself would share the port with the other process in silence.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from contextlib import suppress

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from replica.config.addresses import split_address, with_port
from replica.server.guard import Guard

__all__ = ["CLIENT_MESSAGE_MAX", "REPLICATION_MESSAGE_MAX", "Listener", "Unbindable"]

CLIENT_MESSAGE_MAX = 4 << 20
"""Bytes of a request: more than the largest batch, so that a batch that is too large is told so by field."""

REPLICATION_MESSAGE_MAX = (64 << 20) + (1 << 20)
"""Bytes of a message between replicas: a register of 64 MiB, and what is around it."""

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    # A half-open connection goes unnoticed without pings. The first timeout is for data that no machine
    # takes, the second for pings that a machine takes and no program answers.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Clients and peers ping as they please.
    ("grpc.http2.max_ping_strikes", 0),
)

_FLUSH = 1.0
"""Seconds in which the answers of handlers that have ended are on their way."""

_SERVING = health_pb2.HealthCheckResponse.SERVING


class Unbindable(Exception):
    """The address cannot be listened on; the text says why and what to do."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")


class Listener:
    """A gRPC server on one address.

    Made, given its services through :attr:`server`, bound, started, stopped: once each, in this order.
    """

    def __init__(self, message_max: int) -> None:
        self.guard = Guard()
        self.server = grpc.aio.server(
            interceptors=[self.guard],
            options=[*_OPTIONS, ("grpc.max_receive_message_length", message_max)],
        )
        self.address = ""
        """``host:port`` as bound, when it is."""
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)

    def reflect(self, services: Sequence[str]) -> None:
        """Let clients ask what these services look like."""
        names = [*services, health.SERVICE_NAME, reflection.SERVICE_NAME]
        reflection.enable_server_reflection(names, self.server)

    def bind(self, address: str) -> None:
        """Take the address; raises Unbindable."""
        _probe(address)
        try:
            port = self.server.add_insecure_port(address)
        except RuntimeError:
            raise Unbindable(address, "cannot be listened on; choose another address") from None
        self.address = with_port(address, port)

    async def start(self, services: Sequence[str]) -> None:
        """Begin to answer, and say of these services that they are healthy."""
        await self.server.start()
        for service in services:
            await self._health.set(service, _SERVING)

    async def stop(self, grace: float) -> None:
        """Stop answering: new calls are refused, streams are ended, others have ``grace`` seconds.

        Returns when no handler runs any more.
        """
        await self._health.enter_graceful_shutdown()
        stopping = asyncio.ensure_future(self.server.stop(grace))
        await self.guard.end_streams()
        # The server does not wait for handlers that it has cancelled.
        await self.guard.quiet()
        await asyncio.wait({stopping}, timeout=_FLUSH)
        # What is left waits for the answer of a connection whose far end has vanished.
        await self.server.stop(None)
        await stopping


def _probe(address: str) -> None:
    """Find out in words whether the address is free. gRPC would print its own to standard error."""
    host, port = split_address(address)
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise Unbindable(address, f"the host is not known: {error.strerror}") from None
    failures: list[OSError] = []
    for family, kind, protocol, _, place in places:
        with suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind(place)
            except OSError as error:
                failures.append(error)
    if any(failure.errno == errno.EADDRINUSE for failure in failures):
        raise Unbindable(address, "another process listens there; stop it, or choose another address")
    if len(failures) == len(places):
        reason = os.strerror(failures[0].errno or 0).lower()
        raise Unbindable(address, f"cannot be listened on ({reason}); choose another address")
