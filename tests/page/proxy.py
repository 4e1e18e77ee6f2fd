"""A proxy between a browser and a server that fails as real ones do."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal, Self

Mode = Literal["pass", "502", "cut", "silent"]

BAD_GATEWAY = (
    b"HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\ncontent-length: 24\r\n"
    b"connection: close\r\n\r\n<h1>502 Bad Gateway</h1>"
)


class Proxy:
    """Passes bytes on to `port`; or answers 502, cuts every connection, or says nothing more.

    A connection that is made keeps what it is told by `mode` at each of its bytes.
    """

    def __init__(self, port: int) -> None:
        self.mode: Mode = "pass"
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.base = f"http://127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(timeout=5)

    def fail(self, mode: Mode) -> None:
        """Fails like this from now on; what is open is cut, unless it is to be silent."""
        self.mode = mode
        if mode != "silent":
            self.drop()

    def drop(self) -> None:
        """Cuts what is open."""
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _start(self, what: object, *arguments: object) -> None:
        assert callable(what)
        thread = threading.Thread(target=what, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(client)
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        server = None
        with contextlib.suppress(OSError):
            if self.mode == "502":
                client.recv(65536)
                client.sendall(BAD_GATEWAY)
            elif self.mode != "cut":
                server = socket.create_connection(("127.0.0.1", self._target), timeout=20)
                server.settimeout(None)
                self._open.add(server)
                self._start(self._pump, server, client)
                self._pump(client, server)
        for each in (client, server):
            if each is not None:
                self._open.discard(each)
                each.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.mode != "silent":
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)
