"""A second py4j gateway to Spark's Java process, for calls from Java to Python.

The gateway of pyspark opens a socket and a Python thread for each Java thread that calls Python. Spark plans each query
in new Java threads, so that queries in a loop would reach the limit of open files. This gateway reuses its sockets.
"""

from __future__ import annotations

import secrets
import zlib
from threading import Lock, local
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ANY_PORT = 0
_READ_TIMEOUT_MS = 0  # unlimited


class CallbackGateway:
    """A gateway whose Java objects can call Python objects. Any thread may use it.

    Attributes:
        jvm: the Java process, by this gateway. pyspark's gateway does not know the objects, see `import_object`.
    """

    def __init__(self, pyspark_gateway: Any) -> None:
        """Start a server in the Java process of pyspark's gateway, and a server for its calls in this process."""
        from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway

        self.pyspark_gateway = pyspark_gateway
        java, token = pyspark_gateway.jvm, secrets.token_hex(32)
        address = java.java.net.InetAddress.getLoopbackAddress()
        self._exchange = java.java.util.concurrent.ConcurrentHashMap()
        # With a minimum connection time, the client would have a cleaning thread that keeps Java alive.
        client = java.py4j.CallbackClient(
            _ANY_PORT,
            address,
            token,
            0,
            java.java.util.concurrent.TimeUnit.SECONDS,
            java.javax.net.SocketFactory.getDefault(),
            True,
            _READ_TIMEOUT_MS,
        )
        builder = getattr(java.py4j, "GatewayServer$GatewayServerBuilder")(self._exchange)
        server = builder.javaAddress(address).javaPort(_ANY_PORT).authToken(token).callbackClient(client).build()
        _start_daemon_thread(pyspark_gateway, server)
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=server.getListeningPort(), auth_token=token, auto_convert=True),
            callback_server_parameters=CallbackServerParameters(
                port=_ANY_PORT, daemonize=True, daemonize_connections=True, auth_token=token
            ),
        )
        server.resetCallbackClient(address, self._gateway.get_callback_server().get_listening_port())
        self.jvm: Any = self._gateway.jvm

    def import_object(self, pyspark_object: Any) -> Any:
        """Return a Java object of pyspark's gateway as an object of this gateway."""
        key = uuid4().hex
        self._exchange.put(key, pyspark_object)
        return self._gateway.entry_point.remove(key)

    def export_object(self, java_object: Any) -> Any:
        """Return a Java object of this gateway as an object of pyspark's gateway."""
        key = uuid4().hex
        self._gateway.entry_point.put(key, java_object)
        return self._exchange.remove(key)

    def make_array(self, class_name: Any, items: list[Any]) -> Any:
        """Return a Java array of objects of a class."""
        array = self._gateway.new_array(class_name, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array


class CallbackObject:
    """A Python object whose methods Java calls, in any thread. Objects with the same text are equal for Java."""

    def __init__(self, gateway: CallbackGateway, text: str) -> None:
        self._gateway, self._text = gateway, text
        self._answer = local()

    def keep_answer(self, answer: Any) -> Any:
        """Return a Java object, and keep it for this thread: py4j must not release it before Java has it."""
        self._answer.value = answer
        return answer

    def equals(self, other: Any) -> bool:
        """Return True for an object with the same text. Spark compares plans to find cached ones.

        `other`: object of Java, also if a Python object is behind it.
        """
        return other is not None and other.toString() == self._text

    def hashCode(self) -> int:
        """Return a number of 31 bits."""
        return zlib.crc32(self._text.encode()) & 0x7FFFFFFF

    def toString(self) -> str:
        """Return the text of the object."""
        return self._text


def _start_daemon_thread(pyspark_gateway: Any, server: Any) -> None:
    """Start a Java server in a daemon thread. The thread of its own `start` would keep spark-submit alive."""
    java = pyspark_gateway.jvm.java.lang
    open_socket = server.getClass().getDeclaredMethod("startSocket", pyspark_gateway.new_array(java.Class, 0))
    open_socket.setAccessible(True)
    open_socket.invoke(server, pyspark_gateway.new_array(java.Object, 0))
    thread = java.Thread(server, "msgq-callback-gateway")
    thread.setDaemon(True)
    thread.start()


_START_LOCK = Lock()
_started: CallbackGateway | None = None


def get_callback_gateway(spark: SparkSession) -> CallbackGateway:
    """Return the gateway to the Java process of a classic session. The first call starts it."""
    global _started
    pyspark_gateway = spark.sparkContext._gateway
    with _START_LOCK:
        if _started is None or _started.pyspark_gateway is not pyspark_gateway:
            _started = CallbackGateway(pyspark_gateway)
        return _started
