"""Pages and the tokens that continue them (DESIGN section 10).

A token names the last key of its page, so a page begins behind it whatever was written meanwhile. It is bound
to its listing and scope by a checksum: a token of another one, or a damaged one, is refused.
"""

from __future__ import annotations

import base64
import binascii

from crdt.codec import Damaged, open_frame, seal_frame
from replica.core.errors import Code, Refused

__all__ = ["check_page_size", "make_token", "read_token"]


def make_token(listing: str, scope: bytes, last: bytes) -> str:
    """The token of a page that ends with ``last``."""
    frame = seal_frame(listing.encode() + b"\0" + scope, last)
    return base64.urlsafe_b64encode(frame).decode().rstrip("=")


def read_token(listing: str, scope: bytes, token: str, field: str = "page_token") -> bytes:
    """The last key of the page that the token continues; raises Refused naming ``field``."""
    try:
        frame = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        return open_frame(listing.encode() + b"\0" + scope, frame)
    except (binascii.Error, ValueError, Damaged):
        raise Refused(
            Code.INVALID_ARGUMENT,
            "is no token of this listing; begin again without one",
            field=field,
        ) from None


def check_page_size(page_size: int, default: int, most: int) -> int:
    """How many entries a page holds at most; 0 means the default. Raises Refused."""
    if not 0 <= page_size <= most:
        raise Refused(Code.INVALID_ARGUMENT, f"must be between 1 and {most}", field="page_size")
    return page_size or min(default, most)
