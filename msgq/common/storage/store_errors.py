"""Errors of object stores in one line: what is wrong, and what to do.

pyarrow raises OSError, and delta-rs raises OSError and DeltaError. Their texts have many lines, and repeat parts of
requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.urls import StorageOptions
from msgq.errors import MsgqError, StorageError

#: Texts of pyarrow and delta-rs that only errors of a store have.
_STORE_PATTERN = re.compile(
    r"AWS Error|\bGeneric (S3|GCS|MicrosoftAzure) error|google::cloud|Azure::|Azure Error|Error performing \w+"
    r"|resolve_\w+ http"
)
_DURATION_PATTERN = re.compile(r"\bin \d+(\.\d+)?\w*")
#: Reasons; the first match counts. The reply to a HEAD request has no text, only a status.
_ERROR_REASONS = (
    (r"NO_?SUCH_?BUCKET|ContainerNotFound", "the bucket does not exist", "create the bucket, or correct the URL"),
    (
        r"EXPIRED_?TOKEN|TOKEN_?REFRESH_?REQUIRED|RequestTimeTooSkewed",
        "the credentials have expired",
        "get new credentials, and repeat the call",
    ),
    (
        r"169\.254\.169\.254|metadata\.google\.internal|NoCredentials|credentials? provider",
        "no credentials were found",
        "set the environment variables of the store, or give storage_options",
    ),
    (
        r"ACCESS_?DENIED|INVALID_?ACCESS_?KEY|SIGNATURE_?DOES_?NOT_?MATCH|AuthenticationFailed|AuthorizationFailure"
        r"|\b40[13]\b|FORBIDDEN|UNAUTHORIZED|HTTP response code 40[13]",
        "the access is denied",
        "check the credentials, whether they have expired, and the permissions to list, read, write and delete",
    ),
    (
        r"SLOW_?DOWN|SERVICE_?UNAVAILABLE|TooManyRequests|\b(429|503)\b",
        "the store is overloaded",
        "repeat the call later, or with fewer processes",
    ),
    (
        r"NETWORK_CONNECTION|error sending request|curlCode|tcp connect|dns error|\btimed? ?out|REQUEST_TIMEOUT",
        "the host cannot be reached",
        "check the network and AWS_ENDPOINT_URL",
    ),
    (
        r"\b(405|501)\b|NotImplemented|MethodNotAllowed",
        "the store does not support the request",
        "a lake needs a store with conditional writes (If-None-Match)",
    ),
    (r"URL scheme is not allowed", "http is not allowed", "set AWS_ALLOW_HTTP=true, or use https"),
)


def describe_store_error(text: str) -> str | None:
    """Return the reason and the remedy of a store's error, in one line; None: not an error of a store.

    The result contains no part of a request.
    """
    if not _STORE_PATTERN.search(text):
        return None
    text = _DURATION_PATTERN.sub("", text.partition("\n\nDebug source:")[0])  # otherwise, 403 ms denies the access
    for pattern, reason, remedy in _ERROR_REASONS:
        if re.search(pattern, text, re.IGNORECASE):
            return f"{reason}; {remedy}"
    code = re.search(r"AWS Error (\w+)|<Code>(\w+)</Code>", text) or re.search(r"\b(\d{3} [A-Z]\w+)", text)
    name = next(filter(None, code.groups()), "") if code else ""
    return f"the store failed{f' with {name}' if name else ''}; repeat the call, or look into the log of the store"


def explain_error(error: Exception, storage_options: StorageOptions) -> str:
    """Return the reason of a library's error in one line, without the secrets of storage options.

    Raises the exception of a signal handler, if it is this error.
    """
    raise_handler_error(error)
    text = str(error)
    return describe_store_error(text) or hide_secrets(text.partition("\n")[0], storage_options)


def hide_secrets(text: str, storage_options: StorageOptions) -> str:
    """Return a text of a library without the keys, secrets and tokens of storage options."""
    for name, value in (storage_options or {}).items():
        if value and ("SECRET" in name or "TOKEN" in name or "KEY" in name):
            text = text.replace(value, "***")
    return re.sub(r"\bsig=[^&'\" ]*", "sig=***", text)  # a SAS token's signature: Azure's library reorders its parts


@contextmanager
def translate_store_errors() -> Iterator[None]:
    """Translate the errors of a store into a `StorageError` of one line. Other errors pass through.

    Raises:
        StorageError: the store has no such bucket, denies the access, is overloaded, or cannot be reached.
    """
    try:
        yield
    except MsgqError:
        raise
    except Exception as error:
        raise_handler_error(error)
        text = str(error)
        reason = describe_store_error(text)
        if reason is None:
            raise
        bucket = re.search(r"\bbucket '[^']+'", text)
        raise StorageError(f"{bucket[0] if bucket else 'object store'} cannot be used: {reason}") from None
