# SPDX-License-Identifier: BSD-3-Clause
"""Files that are found where a checkpoint was expected: what each is, and what to do."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from typing import Any

#: How many bytes tell.
HEAD = 512

_PACKED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"7z\xbc\xaf\x27\x1c": ("7z", "7z x"),
    b"Rar!\x1a\x07": ("rar", "unrar x"),
    b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
}
_CHANGED = b"\x80\x02\x8a\r\nl\xfc"
_BEGINNINGS = {
    b"\x93NUMPY": "an array of NumPy: numpy.load(path) reads it",
    b"Salted__": "encrypted by openssl: decrypt it first",
    b"age-encryption.org": "encrypted by age: decrypt it first",
    b"-----BEGIN PGP MESSAGE": "encrypted by PGP: decrypt it first",
    _CHANGED: (
        "a file of torch whose line endings were changed on the way, as a transfer as text does: "
        "transfer it again as binary"
    ),
}
#: How a pickle of protocol 0 or 1 begins that is an object: with the name of a function.
_OLD_NAME = re.compile(rb"c[A-Za-z_][\w.]*\n[A-Za-z_][\w.]*\n")
#: How an answer of a server begins that is not the file.
_JSON_ERROR = re.compile(rb'\s*\{\s*"(?:error|message|detail|errors|Code)"\s*:', re.IGNORECASE)
#: The entries of an archive of torch before 0.1.10.
_OLD_PARTS = frozenset((b"sys_info", b"pickle", b"storages", b"tensors"))
#: A map of msgpack whose first key is text.
_MSGPACK = re.compile(rb"(?:[\x81-\x8f]|\xde..)(?:[\xa1-\xbf]|\xd9.)[A-Za-z_]", re.DOTALL)
_FEWEST = 8  # line feeds that tell
_LFS = b"version https://git-lfs"
_SIZE = re.compile(rb"^size (\d{1,18})$", re.MULTILINE)
_CODE = re.compile(rb"<Code>(\w{1,60})</Code>")


def not_damaged(error: Any) -> Any:
    """An error of a file that may be whole: it is another one, or something is needed to read it.
    What verifies files does not call it damaged.
    """
    error.is_damage = False
    return error


def of_rules(error: Any) -> Any:
    """An error of a call that gives rules for files of ranks where there are none."""
    error.is_of_rules = True
    return not_damaged(error)


def is_half(head: bytes, end: bytes = b"") -> bool:
    """Whether a file of a kind that :func:`what_it_is` knows begins so after damage on the way."""
    return not any(head[:64] + end) or head.startswith(_CHANGED)


def end_of(file: Any, head: bytes) -> bytes:
    """The last bytes of a file that begins with zeros; none of others."""
    if any(head[:64]):
        return b""
    size = file.seek(0, 2)
    file.seek(max(0, size - HEAD))
    end: bytes = file.read(HEAD)
    return end


def what_it_is(head: bytes, end: bytes = b"") -> str | None:
    """What a file is that begins so and is not a checkpoint, and what to do; None where that is not
    known.

    Args:
        head: Its first bytes.
        end: Its last bytes, where they tell.
    """
    if not head:
        return "the file is empty: a download or a save that did not get far; get it again"
    for beginning, text in _BEGINNINGS.items():
        if head.startswith(beginning):
            return f"it is {text}"
    for beginning, (name, program) in _PACKED.items():
        if head.startswith(beginning):
            return f"it is compressed with {name}: unpack it first, with {program}"
    if head[4:8] == b"ET12":
        return "it is a program of ExecuTorch (.pte), which is made for devices: save its model"
    if _MSGPACK.match(head):
        return "it is msgpack, as flax writes it: flax.serialization.msgpack_restore(data) reads it"
    if _is_tar(head):
        if head[:100].rstrip(b"\0") in _OLD_PARTS:
            return (
                "it is a file of torch before 0.1.10: torch.load(path, weights_only=False) reads "
                "it, if you trust where it comes from; save it again"
            )
        return "it is a tar archive: modtree.load_file(path) reads a checkpoint in it"
    if head.startswith(_LFS):
        size = _SIZE.search(head)
        of = f" of {int(size[1]):,} bytes" if size else ""
        return f"it is a Git LFS pointer to a file{of}: get the file with git lfs pull"
    if (markup := _markup(head)) is not None:
        return markup
    if _JSON_ERROR.match(head):
        return (
            f"it is an answer of a server, {head.strip()[:80].decode('utf-8', 'replace')!a}: get "
            f"the file again, with a token where one is needed"
        )
    if len(head) >= 64 and not any(head[:64]):
        if any(end):
            return "it begins with zeros and goes on: numbers, perhaps, that nothing describes"
        return "it begins with zeros: a download that is not complete; get it again"
    return None


def begins_as_pickle(head: bytes) -> bool:
    """Whether a file begins as a pickle of a container or an object does."""
    if head[:1] == b"\x80":
        return head[1:2] in b"\x02\x03\x04\x05"
    # Of protocols 0 and 1; a length of a header has zeros.
    is_container = head[:1] in b"}](" and b"\0\0\0" not in head[:8]
    return is_container or _OLD_NAME.match(head) is not None


def text_in(head: bytes) -> str | None:
    """The first line of a file that begins as text does; None of others."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # its last letter may be cut
    except UnicodeDecodeError:
        return None
    is_text = any(map(str.isalpha, text)) and all(map(str.isprintable, text.split()))
    return text.strip().splitlines()[0] if is_text else None


def unknown(head: bytes) -> str:
    """What to say of a file that begins so and is not known."""
    text = text_in(head)
    beginning = f"begins with {head[:8]!r}" if text is None else f"is text, {text[:60]!r}"
    return (
        f"not a known checkpoint format: it {beginning}; expected safetensors, the index of "
        f"shards, or a file of torch.save() or modtree.save()"
    )


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _markup(head: bytes) -> str | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:100].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return (
            "it is a web page: a download that was answered by a page; get the file again, with "
            "the address of the file itself and a token where one is needed"
        )
    if start.startswith((b"<?xml", b"<error>")):
        code = _CODE.search(head)
        says = f" that says {code[1].decode()}" if code else ""
        return f"it is an XML document{says}, as a storage server answers; get the file again"
    return None


def what_an_archive_is(names: Iterable[str]) -> str | None:
    """What a zip archive is that torch.save() did not write, by the names of its entries."""
    found = list(names)
    if any(name.endswith(".npy") for name in found):
        return "it is an archive of NumPy (.npz): modtree.load_file(path) reads it"
    if "model.weights.h5" in found:
        return "it is a model of Keras: keras.saving.load_model(path) reads it"
    if any(name.rpartition("/")[2] == "archive_format" for name in found):
        return "it is a program of torch.export: torch.export.load(path) reads it"
    if any(name.endswith("/extern_modules") for name in found):
        return "it is a package of torch.package: torch.package.PackageImporter(path) reads it"
    inside = [name for name in found if name.endswith((".safetensors", ".pt", ".pth", ".bin"))]
    if inside:
        return f"it is a zip archive around {inside[0]!r:.80}: modtree.load_file(path) reads it"
    return None


def what_damaged_it(sample: bytes) -> str | None:
    """What a transfer did to a file whose first bytes these are, as far as that shows."""
    feeds = sample.count(b"\n")
    # By chance, one in 256 has a carriage return before it.
    if feeds >= _FEWEST and feeds == sample.count(b"\r\n"):
        return (
            "its line endings were changed on the way, as a transfer as text does: transfer it "
            "again as binary"
        )
    return None
