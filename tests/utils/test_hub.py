"""The hub: asked once whether it is there, quiet, and one line where it is not."""

import logging

import pytest

from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError


@pytest.fixture
def online(monkeypatch):
    """The hub not switched off, and nothing remembered of it."""
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    hub._ask.cache_clear()
    yield
    hub._ask.cache_clear()


def test_no_answer_is_asked_for_once(online, monkeypatch):
    asked = []

    class Session:
        def get(self, address, headers, timeout):
            asked.append((address, timeout))
            raise ConnectionError

    monkeypatch.setattr(hub, "get_session", Session)
    assert [hub.unavailable("o/r") for _ in range(3)] == ["the hub cannot be reached"] * 3
    assert asked == [(f"{hub.constants.ENDPOINT}/api/models/o/r", 5.0)]
    with pytest.raises(
        UserError, match="no f.txt in o/r on the hub or in the local cache, and the hub cannot be reached"
    ):
        hub.download("o/r", "f.txt")


def test_an_answer_is_enough(online, monkeypatch):
    monkeypatch.setattr(hub, "get_session", lambda: type("Session", (), {"get": lambda *a, **k: None})())
    assert hub.unavailable() is None


def test_switched_off_is_not_asked(monkeypatch):
    hub._ask.cache_clear()
    monkeypatch.setattr(hub, "get_session", lambda: pytest.fail("asked"))
    assert hub.unavailable() == "the hub is switched off (HF_HUB_OFFLINE)"
    assert hub.find("o/r", "f.txt") is None
    with pytest.raises(UserError, match="switched off \\(HF_HUB_OFFLINE\\)"):
        hub.download("o/r", "f.txt")


@pytest.mark.parametrize("name", ["", "a b", "../x", "a/b/c"])
def test_odd_names(name):
    with pytest.raises(UserError) as error:
        hub.download(name, "f.txt")
    assert "\n" not in str(error.value)


def test_quiet_puts_levels_back():
    logger = logging.getLogger("some.library")
    logger.setLevel(logging.INFO)
    with hub.quiet("some.library"):
        assert logger.level == logging.ERROR
    assert logger.level == logging.INFO
