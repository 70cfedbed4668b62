"""Listeners of the host that answer everybody with a flag.

listener.py PATH ABSTRACT   flags from stdin, one a line: TCP, Unix socket PATH, abstract one;
                            prints the port of 127.0.0.1 (and ::1), serves until it is ended
listener.py --ask tcp ADDRESS:PORT | unix PATH | unix @ABSTRACT   prints the answer
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys


def _listening(family: socket.AddressFamily, address: object) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind(address)
    sock.listen()
    return sock


def _serve(path: str, abstract: str) -> None:
    tcp_flag, path_flag, abstract_flag = (line.strip() for line in sys.stdin)
    first = _listening(socket.AF_INET, ("127.0.0.1", 0))
    port = first.getsockname()[1]
    flags = {
        first: tcp_flag,
        _listening(socket.AF_UNIX, path): path_flag,
        _listening(socket.AF_UNIX, f"\0{abstract}"): abstract_flag,
    }
    with contextlib.suppress(OSError):
        flags[_listening(socket.AF_INET6, ("::1", port))] = tcp_flag
    print(port)
    sys.stdout.close()
    with selectors.DefaultSelector() as selector:
        for each in flags:
            selector.register(each, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                with contextlib.suppress(OSError), key.fileobj.accept()[0] as client:
                    client.sendall(flags[key.fileobj].encode())


def _ask(kind: str, address: str) -> None:
    if kind == "tcp":
        host, _, port = address.rpartition(":")
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout=5)
    else:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(address.replace("@", "\0", 1))
    with sock:
        sys.stdout.write(sock.recv(1024).decode())


if __name__ == "__main__":
    if sys.argv[1] == "--ask":
        _ask(sys.argv[2], sys.argv[3])
    else:
        _serve(sys.argv[1], sys.argv[2])
