"""Digest of the package's source code, which is part of every cache key: changed code invalidates the cache."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path

import crowdrank


@cache
def source_digest() -> str:
    """Return a digest of the version and the Python files, or of the RECORD file if imported from a zip file."""
    digest = hashlib.blake2b(crowdrank.__version__.encode(), digest_size=16)
    package = Path(__file__).parent
    paths = sorted(package.rglob("*.py"))
    for path in paths:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    if not paths:
        digest.update((_read_record_file() or "").encode())
    return digest.hexdigest()


def _read_record_file() -> str | None:
    """Return the text of the installation's RECORD file (its files and their hashes), or None."""
    try:
        return metadata.distribution("crowdrank").read_text("RECORD")
    except metadata.PackageNotFoundError:
        return None
