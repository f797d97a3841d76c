"""File systems of pyarrow for the URLs of lakes and recordings.

Credentials come from storage options, or from where each store's own library looks: environment variables, files of the
user, and the metadata service of a cloud's machine. No text of this module contains a value of an option.

Schemes: https://arrow.apache.org/docs/python/filesystems.html
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from pyarrow.fs import (
    AwsStandardS3RetryStrategy,
    AzureFileSystem,
    FileSystem,
    GcsFileSystem,
    LocalFileSystem,
    S3FileSystem,
)

from msgq.common.handler_errors import raise_handler_error
from msgq.common.settings import get_storage_variables
from msgq.common.storage.urls import FILE_URL_PREFIX, get_scheme, refuse_local_options
from msgq.errors import InvalidValueError, RecordingError, StorageError

#: Names of storage options, and the arguments of pyarrow's file systems. delta-rs gets the options by the same names.
_S3_ARGUMENTS = {
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint_override",
}
_S3_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")  # pyarrow's class reads the other variables
_AZURE_ARGUMENTS = {
    "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
    "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
    "AZURE_STORAGE_SAS_TOKEN": "sas_token",
    "AZURE_TENANT_ID": "tenant_id",
    "AZURE_CLIENT_ID": "client_id",
    "AZURE_CLIENT_SECRET": "client_secret",
}
_ARGUMENTS_BY_SCHEME = {
    **dict.fromkeys(("s3", "s3a"), _S3_ARGUMENTS),
    **dict.fromkeys(("abfs", "abfss"), _AZURE_ARGUMENTS),
}
_URL_FORMS = {
    **{scheme: f"{scheme}://BUCKET/PATH" for scheme in ("s3", "s3a", "gs", "gcs")},
    **{scheme: f"{scheme}://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH" for scheme in ("abfs", "abfss")},
}
#: Options of S3 that only delta-rs takes.
DELTA_OPTIONS = {"AWS_ALLOW_HTTP", "AWS_FORCE_CREDENTIAL_LOAD"}
_S3_CONNECT_TIMEOUT_S = 10
_S3_REQUEST_TIMEOUT_S = 30  # same as in delta-rs; by default, pyarrow ends a request after 3 s without a byte
_S3_ATTEMPTS_MAX = 6  # tries of a request, with waits that double: some seconds in total

_processes_with_stores: set[int] = set()  # this process, or parents before a fork


def open_file_system(url: str, storage_options: Mapping[str, str] | None = None) -> tuple[FileSystem, str]:
    """Return the file system of a URL, and the path in it.

    The text after file:// is a plain path, as in Spark: %20 is not decoded.

    Args:
        storage_options: credentials and settings by the names of environment variables; None: the store's own library
            finds them.

    Raises:
        InvalidValueError: the scheme is not supported, the URL contains credentials, or a storage option is unknown or
            for a local path.
        RecordingError: the library of the store cannot be used.
        StorageError: a parent of this process used a store before the fork.
    """
    scheme = get_scheme(url)
    options = dict(storage_options or {})
    if scheme == "file":
        refuse_local_options(url, options)
        return LocalFileSystem(), url.removeprefix(FILE_URL_PREFIX)
    _check_options(scheme, options)
    _check_process(scheme)
    if scheme == "hdfs":
        return _open_hadoop(url)
    root, slash, path = url.partition("://")[2].partition("/")
    is_azure = scheme in ("abfs", "abfss")
    bucket, _, host = root.partition("@") if is_azure else (root, "", "")
    if (
        not bucket or bool(host) != is_azure or "@" in f"{bucket}{host}" or ":" in bucket
    ):  # the text of the error must not repeat a password
        form = _URL_FORMS[scheme]
        raise InvalidValueError(
            f"URL with {scheme}:// names no bucket; write {form}, without a user, a password or a port"
        )
    opened = _OPEN_BY_SCHEME[scheme](host.partition(".")[0], options)
    return opened, f"{bucket}{slash}{path}"


def find_s3_endpoint(storage_options: Mapping[str, str]) -> str | None:
    """Return the URL of an S3 server from storage options or the environment; None: the servers of AWS."""
    variables = get_storage_variables(_S3_ENDPOINT_VARIABLES)
    return storage_options.get("AWS_ENDPOINT_URL") or next(iter(variables.values()), None)


def _check_process(scheme: str) -> None:
    """Check that no parent has used a store, because a lock of the store's threads could stay locked in the child."""
    if _processes_with_stores and os.getpid() not in _processes_with_stores:
        raise StorageError(
            f"a store with {scheme}:// cannot be opened in a forked process whose parent has opened a store, because"
            " the libraries of stores have threads; start the process with multiprocessing.get_context('spawn')"
        )
    _processes_with_stores.add(os.getpid())


def _check_options(scheme: str, options: Mapping[str, str]) -> None:
    known_options = {*_ARGUMENTS_BY_SCHEME.get(scheme, ()), *(DELTA_OPTIONS if scheme in ("s3", "s3a") else ())}
    unknown = sorted(set(options) - known_options)
    if unknown:
        use = (
            f"use {', '.join(sorted(known_options))}"
            if known_options
            else "set the environment variables of the store's library"
        )
        raise InvalidValueError(f"storage option {unknown[0]!r} is not known for {scheme}://; {use}")


def _pick_arguments(names: Mapping[str, str], options: Mapping[str, str]) -> dict[str, Any]:
    return {argument: options[name] for name, argument in names.items() if options.get(name)}


def _open_s3(_account: str, options: Mapping[str, str]) -> FileSystem:
    arguments = _pick_arguments(_S3_ARGUMENTS, options)
    if endpoint := find_s3_endpoint(options):
        scheme, separator, host = endpoint.rstrip("/").rpartition("://")
        arguments |= {"endpoint_override": host, "scheme": scheme if separator else "https"}
    retries = AwsStandardS3RetryStrategy(max_attempts=_S3_ATTEMPTS_MAX)
    limits = {"connect_timeout": _S3_CONNECT_TIMEOUT_S, "request_timeout": _S3_REQUEST_TIMEOUT_S}
    # delayed: one request for a small file, which a killed process cannot leave unfinished
    return _open_checked(S3FileSystem, {**arguments, **limits, "retry_strategy": retries, "allow_delayed_open": True})


def _open_checked(kind: Callable[..., FileSystem], arguments: Mapping[str, Any]) -> FileSystem:
    try:
        return kind(**arguments)
    except ValueError as error:  # a key without its secret, for example
        raise InvalidValueError(f"storage options are incomplete or contradict each other: {error}") from None


def _open_gcs(_account: str, _options: Mapping[str, str]) -> GcsFileSystem:
    return GcsFileSystem()


def _open_azure(account: str, options: Mapping[str, str]) -> FileSystem:
    settings = {**get_storage_variables(_AZURE_ARGUMENTS), **options}
    arguments = {"account_name": account, **_pick_arguments(_AZURE_ARGUMENTS, settings)}
    if token := arguments.get("sas_token"):
        arguments["sas_token"] = f"?{token.removeprefix('?')}"
    return _open_checked(AzureFileSystem, arguments)


def _open_hadoop(url: str) -> tuple[FileSystem, str]:
    try:
        found: tuple[FileSystem, str] = FileSystem.from_uri(url)
    except OSError as error:
        raise_handler_error(error)
        reason = str(error).partition("\n")[0]
        text = (
            f"HDFS cannot be used: {reason}; set JAVA_HOME and HADOOP_HOME, and CLASSPATH to `hadoop classpath --glob`"
        )
        raise RecordingError(text) from None
    return found


_OPEN_BY_SCHEME: dict[str, Callable[[str, Mapping[str, str]], FileSystem]] = {
    **dict.fromkeys(("s3", "s3a"), _open_s3),
    **dict.fromkeys(("gs", "gcs"), _open_gcs),
    **dict.fromkeys(("abfs", "abfss"), _open_azure),
}
