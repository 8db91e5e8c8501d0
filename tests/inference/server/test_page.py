"""The page, in a real browser, with the real server."""

from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from simcse_pl.inference.simcse import SimCSE
from tests.conftest import SENTENCES, serving

pytestmark = pytest.mark.browser

HOSTILE = '<img src=x onerror="document.title=1"> & <b>bold</b>'
CORPUS = [*SENTENCES, HOSTILE, "Ein Hund läuft 🐕"]

_COLUMNS = """
  const text = (item) => [".similarity", "a", ".other"].map((part) => item.querySelector(part).textContent);
  return [...document.querySelectorAll("section")].map((section) => [...section.querySelectorAll("li")].map(text));
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    path.write_text("\n".join(CORPUS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folders(make_model):
    return [make_model("bert"), make_model("roberta")]


@pytest.fixture(scope="module")
def address(folders, corpus):
    """The address of a server with two encoders."""
    options = ["--pooling", "mean,cls", "--device", "cpu", "--max-characters", "200"]
    with serving(*folders, *options, "--sentences", corpus) as (_, address):
        yield address


@pytest.fixture
def page(browser, address):
    """The open page; after the test, its log must be empty and its requests local."""
    opened = Page(browser)
    opened.open(address)
    yield opened
    asked = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert asked and all(url.startswith(f"{address}/") for url in asked)
    assert browser.get_log("browser") == []


class Page:
    """Actions of a user on the page."""

    def __init__(self, browser):
        self.browser = browser

    def open(self, url):
        self.browser.get(url)
        self.until(lambda: self.columns() and (self.text("status") or self.text("error")))

    def until(self, condition):
        return WebDriverWait(self.browser, 30).until(lambda _: condition())

    def text(self, name):
        return self.browser.find_element(By.ID, name).text

    def type(self, text, field="query"):
        self.browser.find_element(By.ID, field).send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
        if text:  # send_keys of some drivers lacks characters above U+FFFF
            self.browser.execute_cdp_cmd("Input.insertText", {"text": text})

    def columns(self):
        """Return similarity, sentence and rank in the other column of each result, per encoder."""
        return self.browser.execute_script(_COLUMNS)

    def found(self, count=10):
        """Return the columns as soon as each has `count` results."""
        self.until(lambda: {len(column) for column in self.columns()} == {count})
        return self.columns()


def expected(folders, corpus, query, top_k=10, threshold=None):
    columns = []
    for folder, pooling in zip(folders, ("mean", "cls"), strict=True):
        simcse = SimCSE(folder, pooling=pooling, device="cpu")
        simcse.build_index(corpus)
        columns.append(simcse.search(query, threshold=threshold, top_k=top_k))
    return columns


def test_the_query_has_focus_and_columns_describe_their_encoders(page, folders):
    assert page.browser.switch_to.active_element.get_attribute("id") == "query"
    assert page.columns() == [[], []]
    headings = [heading.text for heading in page.browser.find_elements(By.TAG_NAME, "h2")]
    assert headings == [str(folder) for folder in folders]
    about = [line.text for line in page.browser.find_elements(By.CLASS_NAME, "about")]
    assert about[0] == "10 sentences · BertModel · pooling mean · 3 layers · 32 dimensions"


def test_columns_show_what_search_finds_with_the_rank_in_the_other(page, folders, corpus):
    page.type("Two dogs run.")
    found, nearest = page.found(), expected(folders, corpus, "Two dogs run.")
    for column, own, other in zip(found, nearest, reversed(nearest), strict=True):
        ranks = [one.sentence for one in other]
        assert [(sentence, rank) for _, sentence, rank in column] == [
            (one.sentence, f"no. {ranks.index(one.sentence) + 1} of the other encoder") for one in own
        ]
        assert [float(similarity) for similarity, _, _ in column] == [
            pytest.approx(one.similarity, abs=6e-4) for one in own
        ]
    for item in page.browser.find_elements(By.TAG_NAME, "li"):
        bar = item.find_element(By.CLASS_NAME, "bar")
        share = bar.find_element(By.TAG_NAME, "span").rect["width"] / bar.rect["width"]
        assert share == pytest.approx(max(0, float(item.find_element(By.CLASS_NAME, "similarity").text)), abs=0.01)
    assert page.text("status").startswith("Found in ")
    page.type("")
    page.until(lambda: page.columns() == [[], []])
    assert page.text("status") == "Type a sentence, or any text." and "?" not in page.browser.current_url


def test_markup_in_a_sentence_is_text(page):
    page.type(HOSTILE)
    assert page.found()[0][0][1] == HOSTILE
    assert not page.browser.find_elements(By.CSS_SELECTOR, "main img, main b")
    assert page.browser.title == f"{HOSTILE} – nearest sentences"


def test_the_address_contains_the_search(page, address, folders, corpus):
    page.type("Two dogs run & 狗? 🐕")
    page.type("3", "top_k")
    page.type("-0.5", "threshold")
    found = page.found(3)
    assert parse_qs(urlsplit(page.browser.current_url).query) == {
        "q": ["Two dogs run & 狗? 🐕"],
        "top_k": ["3"],
        "threshold": ["-0.5"],
    }
    url = page.browser.current_url
    page.browser.get("about:blank")
    page.open(url)
    assert page.found(3) == found
    assert page.browser.find_element(By.ID, "top_k").get_attribute("value") == "3"


def test_a_found_sentence_can_be_searched_by_keyboard(page):
    page.type("Two dogs run.")
    sentence = page.found()[0][1][1]
    keys = page.browser.switch_to.active_element
    while keys.text != sentence:
        keys.send_keys(Keys.TAB)
        keys = page.browser.switch_to.active_element
    marked = page.browser.find_elements(By.CSS_SELECTOR, "li.marked a")
    assert [link.text for link in marked] == [sentence] * 2  # in both columns
    keys.send_keys(Keys.ENTER)
    page.until(lambda: page.browser.find_element(By.ID, "query").get_attribute("value") == sentence)
    assert page.found()[0][0][:2] == ["1.000", sentence]
    page.browser.back()
    page.until(lambda: page.browser.find_element(By.ID, "query").get_attribute("value") == "Two dogs run.")
    page.found()


def test_invalid_input_shows_an_error(page):
    page.type("Two dogs run.")
    page.found()
    page.type("🐕" * 201)
    page.until(lambda: page.text("error"))
    assert page.text("error") == "This sentence has 201 characters: the limit is 200."
    assert page.columns() == [[], []] and not page.text("status")
    page.type("🐕" * 200)
    page.found()
    assert not page.text("error")
    for field, value in (("top_k", "0"), ("top_k", "101"), ("top_k", ""), ("threshold", "2")):
        page.type(value, field)
        page.until(lambda: page.text("error"))
        page.type("5" if field == "top_k" else "", field)
        page.found(5)


def test_a_stopped_server_shows_an_error(browser, make_model, corpus):
    with serving(make_model("bert"), "--pooling", "mean", "--device", "cpu", "--sentences", corpus) as (process, url):
        page = Page(browser)
        page.open(url)
        page.type("Two dogs run.")
        assert len(page.found()) == 1 and {rank for _, _, rank in page.columns()[0]} == {""}  # one encoder alone
        process.terminate()
        process.wait(60)
        page.type("Two dogs run away.")
        page.until(lambda: page.text("error"))
    assert page.text("error") == "No answer: is the server still running?"
    assert page.columns() == [[]]
