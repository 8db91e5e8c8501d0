import socket

import pytest

from simcse_pl.inference.server.listen import address, host_names, is_loopback, listen
from simcse_pl.utils.errors import UserError


def test_it_listens_at_once_on_a_free_port():
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port and address(listener) == f"http://127.0.0.1:{port}" and is_loopback(listener)
        socket.create_connection(("127.0.0.1", port), 5).close()
        with pytest.raises(UserError, match=f"--port {port}: the port is in use, and --port 0 takes a free one$"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(
    ("host", "port", "line"),
    [
        ("127.0.0.1", -1, "--port -1: it must be from 0 to 65535$"),
        ("127.0.0.1", 65536, "--port 65536: it must be from 0 to 65535$"),
        ("no such host", 0, "cannot listen on --host no such host --port 0: .*not known"),
        ("192.0.2.1", 0, "cannot listen on --host 192.0.2.1 --port 0: .*assign"),
    ],
)
def test_where_nobody_can_listen_is_one_line(host, port, line):
    with pytest.raises(UserError, match=line) as error:
        listen(host, port)
    assert "\n" not in str(error.value)


def test_on_loopback_a_browser_must_call_it_by_a_name_of_this_machine():
    with listen("127.0.0.2", 0) as listener:
        assert host_names(listener) == ["127.0.0.1", "127.0.0.2", "[::1]", "localhost"]
    with listen("localhost", 0) as listener:
        assert is_loopback(listener)
    with listen("0.0.0.0", 0) as listener:
        assert not is_loopback(listener) and host_names(listener) == ["*"]


def test_of_the_other_kind_of_address():
    try:
        listener = listen("::1", 0)
    except UserError:
        pytest.skip("there is no IPv6 here")
    with listener:
        assert address(listener) == f"http://[::1]:{listener.getsockname()[1]}" and is_loopback(listener)
