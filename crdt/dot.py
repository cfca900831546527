"""Dots: the names of writes (DESIGN section 1).

A dot is one element of the causal history: "the n-th write of this incarnation of this cluster". Dots are
compared by cluster bytes, incarnation, counter; Python orders text by code point, which is the order of its
UTF-8 bytes.

Both types are named tuples: clocks hash and sort a great many of them, and a tuple does both in C.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

__all__ = ["Actor", "Dot", "Incarnation", "Millis"]

Millis = NewType("Millis", int)
"""A time or a duration in integer milliseconds; as a time, since the Unix epoch, UTC."""

Incarnation = NewType("Incarnation", bytes)
"""16 random, time-ordered bytes: one unbroken life of a replica's data (section 8)."""


class Actor(NamedTuple):
    """Who writes: one incarnation of one cluster's replica."""

    cluster: str
    incarnation: Incarnation


class Dot(NamedTuple):
    """One write: its actor and its counter, which runs 1, 2, 3 … over the whole store without gaps."""

    actor: Actor
    counter: int
