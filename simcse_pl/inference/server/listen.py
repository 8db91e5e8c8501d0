"""Listening on an address, on this machine alone unless told otherwise."""

import errno
import ipaddress
import socket

import uvicorn
from fastapi import FastAPI

from simcse_pl.utils.errors import UserError, first_line

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_SECONDS_TO_END = 5  # for what is being answered when the server is told to stop


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; what connects is answered once `run` is called.

    Args:
        host: a name or an address.
        port: 0 for one that is free.

    Raises:
        UserError: a port that is in use or is none, or there is no such address here.
    """
    if not 0 <= port < 1 << 16:
        raise UserError(f"--port {port}: it must be from 0 to 65535")
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is in use, and --port 0 takes a free one" if taken else first_line(error)
        raise UserError(f"cannot listen on --host {host} --port {port}: {why}") from error


def address(listener: socket.socket) -> str:
    """What to type into a browser."""
    return f"http://{_host(listener)}:{listener.getsockname()[1]}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can connect."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def host_names(listener: socket.socket) -> list[str]:
    """The names that a browser may call the server by: on loopback its own, elsewhere whatever the network has."""
    return sorted({*_LOOPBACK, _host(listener)}) if is_loopback(listener) else ["*"]


def _host(listener: socket.socket) -> str:
    host: str = listener.getsockname()[0]
    return f"[{host}]" if ":" in host else host


def run(app: FastAPI, listener: socket.socket) -> None:
    """Answer until told to stop, by SIGINT or SIGTERM, which then does what it always does."""
    quiet = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=_SECONDS_TO_END,
    )
    uvicorn.Server(quiet).run(sockets=[listener])
