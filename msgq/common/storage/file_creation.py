"""Creation of files that do not exist yet: of several writers, exactly one creates the file.

pyarrow cannot create an object only if the object is missing. The library obstore can: it sends a conditional request
(`If-None-Match` for S3 and Azure, generation 0 for Google). obstore and delta-rs contain the same Rust library, so both
take the same storage options, and find the same credentials. Only delta-rs finds credentials of AWS profiles.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyarrow.fs import FileSystem

from msgq.common.optional import missing_library
from msgq.common.settings import get_storage_variables
from msgq.common.storage.file_systems import DELTA_OPTIONS, find_s3_endpoint
from msgq.common.storage.store_errors import explain_error
from msgq.common.storage.urls import StorageOptions, get_scheme, translate_scheme
from msgq.errors import StorageError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

#: Variables of credentials that obstore reads itself.
_S3_CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
#: Files with profiles, by the variables that name other paths.
_S3_PROFILE_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
_S3_LOCK_VARIABLE = "AWS_S3_LOCKING_PROVIDER"  # a lock that delta-rs takes before each commit
_ATTEMPTS, _CONFLICT_PAUSE_S = 6, 0.1  # conditional requests that a store lets fail, because another one runs
_TRUE_TEXTS = ("1", "true", "on", "yes", "y")  # values of delta-rs for AWS_ALLOW_HTTP


def create_local_file(path: str, data: bytes) -> bool:
    """Create a file of a disk atomically. Return False if the file exists.

    A killed process can leave a file whose name begins with a dot.
    """
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name}.{uuid4().hex}")
    try:
        with open(new, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    except FileExistsError:
        return os.path.samefile(new, path)  # a network file system can repeat a request that succeeded
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(new)
    return True


class ObjectCreator:
    """Creates objects of a bucket. The repr contains no storage option."""

    def __init__(self, store: ObjectStore, url: str, storage_options: StorageOptions) -> None:
        self._store, self._url, self._storage_options = store, url, storage_options

    def create_object(self, key: str, data: bytes) -> bool:
        """Create an object atomically. Return False if the object exists with other content.

        Raises:
            StorageError: the store cannot be written.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        for attempt in range(_ATTEMPTS):
            try:
                obstore.put(self._store, key, data, mode="create")
                return True
            except AlreadyExistsError:
                content = self._read_object(key)
                if content is not None:
                    return content == data  # equal: the library has repeated a request whose response was lost
            except (BaseError, OSError) as error:
                with suppress(StorageError):
                    if self._read_object(key) == data:
                        return True
                raise self._explain_error(key, error) from None
            time.sleep(_CONFLICT_PAUSE_S * 2**attempt)  # the other request of this conflict (status 409) has failed
        text = f"requests of other writers conflicted {_ATTEMPTS} times; repeat the call"
        raise StorageError(f"'{self._url}/{key}' cannot be written: {text}", errno=errno.EIO)

    def _read_object(self, key: str) -> bytes | None:
        """Return the content of an object; None: it does not exist."""
        import obstore
        from obstore.exceptions import BaseError, NotFoundError

        try:
            return bytes(obstore.get(self._store, key).bytes())
        except (NotFoundError, FileNotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise self._explain_error(key, error) from None

    def _explain_error(self, key: str, error: Exception) -> StorageError:
        reason = explain_error(error, self._storage_options)
        return StorageError(f"'{self._url}/{key}' cannot be written: {reason}", errno=errno.EIO)


def open_object_creator(url: str, storage_options: StorageOptions, files: FileSystem) -> ObjectCreator | None:
    """Return what creates the objects of a URL's bucket; None: only delta-rs can write to the store safely.

    Args:
        files: file system of the URL.
    """
    scheme, options = get_scheme(url), dict(storage_options or {})
    if scheme not in ("s3", "s3a", "gs", "gcs", "abfs", "abfss"):
        return None
    is_s3 = scheme in ("s3", "s3a")
    if is_s3 and not _finds_s3_credentials(options):
        return None
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ModuleNotFoundError as missing:
        raise missing_library("a lake in an object store", "lake", "obstore") from missing
    root = f"{translate_scheme(scheme)}://{url.partition('://')[2].partition('/')[0]}"
    config: Any = {name: value for name, value in options.items() if value and name not in DELTA_OPTIONS}
    client: Any = None
    if is_s3:
        endpoint = find_s3_endpoint(options)
        config |= {"AWS_REGION": files.region} | ({"AWS_ENDPOINT_URL": endpoint} if endpoint else {})
        allow_http = {**get_storage_variables(["AWS_ALLOW_HTTP"]), **options}.get("AWS_ALLOW_HTTP", "")
        client = {"allow_http": allow_http.lower() in _TRUE_TEXTS}
    try:
        store = from_url(root, config=config, client_options=client)
    except (BaseError, ValueError) as error:
        reason = explain_error(error, storage_options)
        raise StorageError(f"'{root}' cannot be used: {reason}", errno=errno.EIO) from None
    return ObjectCreator(store, root, storage_options)


def _finds_s3_credentials(options: Mapping[str, str]) -> bool:
    """Return True if obstore finds the same credentials as delta-rs, and no commit needs a lock of delta-rs."""
    if get_storage_variables([_S3_LOCK_VARIABLE]):
        return False
    if {**get_storage_variables(_S3_CREDENTIAL_VARIABLES), **options}.keys() & {*_S3_CREDENTIAL_VARIABLES}:
        return True
    paths = {**_S3_PROFILE_FILES, **get_storage_variables(_S3_PROFILE_FILES)}
    return not any(os.path.exists(os.path.expanduser(path)) for path in paths.values())
