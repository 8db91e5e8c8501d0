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
