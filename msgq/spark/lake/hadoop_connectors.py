"""Hadoop's connectors for object stores, with which Spark's own readers open files.

Settings: https://hadoop.apache.org/docs/stable/hadoop-aws/tools/hadoop-aws/index.html
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from msgq.common.storage.file_systems import find_s3_endpoint
from msgq.common.storage.urls import get_scheme
from msgq.impl.base.argument_checks import warn_program
from msgq.spark.runtime.connect_client import is_connect_client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Hadoop's schemes for a scheme of a lake, in the order in which they are tried.
_HADOOP_SCHEMES = {"s3": ("s3", "s3a"), "s3a": ("s3a", "s3"), "gcs": ("gs",)}
#: Classes by which a client of Spark Connect asks for a connector, because it cannot see the settings of Java.
_CONNECTOR_CLASSES = {
    "s3a": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "gs": "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem",
    "abfs": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    "abfss": "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
    "hdfs": "org.apache.hadoop.hdfs.DistributedFileSystem",
}
_CONNECTOR_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "hadoop-aws"),
    **dict.fromkeys(("gs", "gcs"), "hadoop-gcp"),
    **dict.fromkeys(("abfs", "abfss"), "hadoop-azure"),
}
_S3A_SETTINGS = {
    "AWS_ACCESS_KEY_ID": "fs.s3a.access.key",
    "AWS_SECRET_ACCESS_KEY": "fs.s3a.secret.key",
    "AWS_SESSION_TOKEN": "fs.s3a.session.token",
    "AWS_REGION": "fs.s3a.endpoint.region",
}
_AZURE_LOGIN_URL = "https://login.microsoftonline.com/{}/oauth2/token"
_AZURE_TOKEN_PROVIDER = "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider"


@dataclass(frozen=True, slots=True)
class HadoopLocation:
    """Location of a lake for Spark's own readers.

    Attributes:
        uri: URL with a scheme that Hadoop knows.
        settings: settings of Hadoop for the read. They may contain credentials, so the repr omits them.
    """

    uri: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


def find_hadoop_location(
    spark: SparkSession, uri: str, storage_options: Mapping[str, str] | None
) -> HadoopLocation | None:
    """Return the location of a lake for Spark's own readers; None: Spark has no connector for the scheme.

    Args:
        uri: URL of the lake.
        storage_options: credentials and settings by the names of environment variables; see `open_file_system`.
    """
    scheme = get_scheme(uri)
    if scheme == "file":
        return HadoopLocation(uri)
    for name in _HADOOP_SCHEMES.get(scheme, (scheme,)):
        if _has_connector(spark, name):
            return HadoopLocation(
                f"{name}{uri[len(scheme) :]}", make_hadoop_settings(scheme, uri, storage_options or {})
            )
    return None


def _has_connector(spark: SparkSession, scheme: str) -> bool:
    """Return whether Spark's Java has a file system for a scheme."""
    from py4j.protocol import Py4JJavaError

    if is_connect_client(spark):
        return _has_server_class(spark, _CONNECTOR_CLASSES.get(scheme, ""))
    hadoop: Any = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]  # there is one: this is no Spark Connect
    try:
        hadoop.FileSystem.getFileSystemClass(scheme, spark._jsparkSession.sessionState().newHadoopConf())
    except Py4JJavaError:
        return False
    return True


def _has_server_class(spark: SparkSession, name: str) -> bool:
    """Return whether a server of Spark Connect has a class. A server may forbid the question."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        found = spark.sql(f"SELECT reflect('org.apache.spark.util.Utils', 'classIsLoadable', '{name}')").first()
        return bool(name) and found is not None and found[0] == "true"
    return False


def make_hadoop_settings(scheme: str, uri: str, storage_options: Mapping[str, str]) -> dict[str, str]:
    """Return Hadoop's settings for storage options. Options without a counterpart in Hadoop are omitted."""
    if scheme in ("s3", "s3a"):
        return _make_s3a_settings(storage_options)
    if scheme in ("abfs", "abfss"):
        return _make_azure_settings(uri.partition("://")[2].partition("/")[0].rpartition("@")[2], storage_options)
    return {}


def _make_s3a_settings(options: Mapping[str, str]) -> dict[str, str]:
    settings = {setting: options[name] for name, setting in _S3A_SETTINGS.items() if options.get(name)}
    if endpoint := find_s3_endpoint(options):
        settings["fs.s3a.endpoint"] = endpoint
        settings["fs.s3a.path.style.access"] = "true"  # other stores rarely have a host name for each bucket
        settings["fs.s3a.connection.ssl.enabled"] = str(not endpoint.startswith("http://")).lower()
    return settings


def _make_azure_settings(host: str, options: Mapping[str, str]) -> dict[str, str]:
    settings = {}
    if key := options.get("AZURE_STORAGE_ACCOUNT_KEY"):
        settings[f"fs.azure.account.key.{host}"] = key
    if token := options.get("AZURE_STORAGE_SAS_TOKEN"):
        settings[f"fs.azure.account.auth.type.{host}"] = "SAS"
        settings[f"fs.azure.sas.fixed.token.{host}"] = token
    if secret := options.get("AZURE_CLIENT_SECRET"):
        settings[f"fs.azure.account.auth.type.{host}"] = "OAuth"
        settings[f"fs.azure.account.oauth.provider.type.{host}"] = _AZURE_TOKEN_PROVIDER
        settings[f"fs.azure.account.oauth2.client.id.{host}"] = options.get("AZURE_CLIENT_ID", "")
        settings[f"fs.azure.account.oauth2.client.secret.{host}"] = secret
        login_url = _AZURE_LOGIN_URL.format(options.get("AZURE_TENANT_ID", ""))
        settings[f"fs.azure.account.oauth2.client.endpoint.{host}"] = login_url
    return settings


_warned_sessions: WeakSet[SparkSession] = WeakSet()


def warn_of_missing_connector(spark: SparkSession, uri: str) -> None:
    """Warn once in a session that Python reads the files of a lake, and name the connector."""
    if spark in _warned_sessions:
        return
    _warned_sessions.add(spark)
    scheme = get_scheme(uri)
    package = f"org.apache.hadoop:{_CONNECTOR_PACKAGES.get(scheme, 'hadoop-client')}:{get_hadoop_version(spark)}"
    where = "the server of Spark Connect" if is_connect_client(spark) else "the session"
    warn_program(
        f"Spark has no connector for {scheme}://, so Python workers read the files of the lake, which is slower; to "
        f"read them with Spark's own readers, start {where} with spark.jars.packages={package}"
    )


def get_hadoop_version(spark: SparkSession) -> str:
    """Return the version of Hadoop in Spark, for example "3.5.0"."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        found = spark.sql("SELECT reflect('org.apache.hadoop.util.VersionInfo', 'getVersion')").first()
        return "VERSION" if found is None else str(found[0])
    return "VERSION"
