"""The Hub: asked once per process, and one line if it is not available."""

import pytest

from simcse_pl.utils import hub
from simcse_pl.utils.errors import UserError


@pytest.fixture(autouse=True)
def _nothing_remembered():
    hub.unavailable.cache_clear()
    yield
    hub.unavailable.cache_clear()


def test_a_hub_without_an_answer_is_asked_once(monkeypatch):
    asked = []

    def repo_info(self, repository, repo_type, timeout):
        asked.append((repository, repo_type, timeout))
        raise ConnectionError("refused")

    monkeypatch.setattr(hub.HfApi, "repo_info", repo_info)
    for _ in range(2):
        with pytest.raises(UserError, match=r"in the local cache, .*: no valid answer .* \(ConnectionError: refused\)"):
            hub.download("o/r", "f.txt")
    assert asked == [("o/r", "model", 5.0)]


def test_offline_mode_searches_the_cache_only():
    assert hub.find("o/r", "f.txt") is None
    with pytest.raises(UserError, match="^no f.txt in o/r in the local cache.*offline mode is enabled"):
        hub.download("o/r", "f.txt")


@pytest.mark.parametrize("name", ["", "a b", "../x", "a/b/c"])
def test_a_name_that_is_not_a_repository_is_an_error(name):
    with pytest.raises(UserError):
        hub.download(name, "f.txt")
