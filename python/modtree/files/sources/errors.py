# SPDX-License-Identifier: BSD-3-Clause
"""What goes wrong on the way to a file, rather than in it."""

from __future__ import annotations

import errno
import os
import re

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")
_PRIVATE = re.compile(r"(?<=://)[^/?#@]*@|(?<=\?).*", re.DOTALL)


class RemoteError(OSError):
    """Bytes that could not be had. A reader passes it on: it says nothing about the file."""

    def __init__(self, reason: str, name: str) -> None:
        super().__init__(errno.EIO, reason, shown_name(name))

    def __reduce__(self) -> tuple[type[RemoteError], tuple[str, str]]:
        return type(self), (str(self.strerror), str(self.filename))


def is_address(text: str) -> bool:
    """True for an address such as ``https://...``, and for the chains of fsspec."""
    return _ADDRESS.match(text) is not None


def is_http(address: str) -> bool:
    """True for the address of a web server."""
    return address[:8].lower().startswith(("http://", "https://"))


def shown_name(name: str) -> str:
    """A path or address as messages have it: without passwords and signatures."""
    if not is_address(name):
        return name
    return _PRIVATE.sub(lambda found: "" if found[0].endswith("@") else "...", name)


def missing(name: str) -> FileNotFoundError:
    """The error for an address with nothing behind it."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), shown_name(name))


def refused_access(name: str, reason: str) -> PermissionError:
    """The error for an address that wants to know who asks."""
    return PermissionError(errno.EACCES, reason, shown_name(name))
