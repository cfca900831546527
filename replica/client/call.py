"""Calls as values: what to send, and how to read the answer. No I/O.

The rooms `memory` and `admin` say what each call is, once; the clients, blocking and asyncio, run them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import GenericAlias
from typing import Generic, TypeVar, get_args, get_type_hints

from google.protobuf.message import Message

__all__ = ["Call", "Feed", "Page", "Pages", "present", "reader"]

Request = TypeVar("Request", bound=Message, covariant=True)
Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")
Item = TypeVar("Item")
Method = TypeVar("Method", bound=Callable[..., object])


@dataclass(frozen=True, slots=True)
class Call(Generic[Request, Result]):
    """One logical call. It can be run many times, and each time is a call of its own."""

    method: str
    """The full name, such as `/ricordo.v1.Memory/Recall`."""
    request: Request
    read: Callable[[bytes], Result]
    """Makes the result of an encoded response; raises protobuf's DecodeError where it is none."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a longer answer."""

    items: tuple[Item, ...]
    next_page_token: str
    """Empty: there are no more."""


@dataclass(frozen=True, slots=True)
class Pages(Generic[Request, Item]):
    """An answer that comes in pages. Clients walk it item by item; :attr:`page` gives one page's call."""

    page: Callable[[str], Call[Request, Page[Item]]]
    """From the token of the page before, or the empty one for the first page."""


@dataclass(frozen=True, slots=True)
class Feed(Generic[Request, Item]):
    """An answer that goes on. Clients yield its items, and ask for what follows where it breaks off."""

    method: str
    """The full name, such as `/ricordo.v1.Memory/Watch`."""
    request: Callable[[str], Request]
    """From the token of the last item, or the empty one for the beginning."""
    read: Callable[[bytes], tuple[Item, ...]]
    """Makes the items of an encoded response; raises protobuf's DecodeError where it is none."""
    token: Callable[[Item], str]
    """The token behind an item."""


def reader(response: type[Response], of: Callable[[Response], Result]) -> Callable[[bytes], Result]:
    """How to read a call's result: decode a response of this type, and make the result of it."""

    def read(encoded: bytes) -> Result:
        message = response()
        message.ParseFromString(encoded)
        return of(message)

    return read


def present(method: Method, build: Callable[..., object], owner: str, within: type | None = None) -> Method:
    """Let a client's method show the name, documentation and signature of the function that builds its call.

    The result type is the last argument of what `build` returns: a call's result, or the item of its pages,
    `within` something that yields it.
    """
    name = build.__name__
    method.__name__, method.__qualname__, method.__doc__ = name, f"{owner}.{name}", build.__doc__
    described = inspect.signature(build)
    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    result = get_args(get_type_hints(build)["return"])[-1]
    if within is not None:
        result = GenericAlias(within, (result,))
    shown = described.replace(parameters=[me, *described.parameters.values()], return_annotation=result)
    setattr(method, "__signature__", shown)  # noqa: B010 - functions do not declare the attribute
    return method
