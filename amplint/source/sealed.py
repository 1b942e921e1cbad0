"""Bytes with a digest before them: what was cut off or changed on disk is noticed."""

from __future__ import annotations

import hashlib


def seal(body: bytes) -> bytes:
    """The bytes behind a line with their digest."""
    return b'"%s"\n%s' % (hashlib.sha256(body).hexdigest().encode(), body)


def unseal(data: bytes) -> bytes:
    """What was sealed.

    Raises:
        ValueError: the digest is not that of the rest.
    """
    digest, _, body = data.partition(b"\n")
    if digest.decode("ascii") != f'"{hashlib.sha256(body).hexdigest()}"':
        raise ValueError("damaged")
    return body
