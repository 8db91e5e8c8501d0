"""Hooks of mkdocs: pages from the top of the repository, and an API reference with a page per package of simcse_pl."""

import pkgutil
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the navigation of the reference."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    modules = [found.name for found in pkgutil.iter_modules([str(ROOT / "simcse_pl")]) if found.name[0] != "_"]
    for name in modules:
        content = f"---\ntitle: {name}\n---\n::: simcse_pl.{name}\n"
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    config.nav.append({"Reference": [f"reference/{name}.md" for name in modules]})
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the repository's links work in the site.

    A linked file that is not a page is copied to the site. A link to a folder, or to Markdown that is not a page,
    becomes its name.
    """

    def in_site(link: re.Match[str]) -> str:
        text, target = link.groups()
        target = target.removeprefix("../").removeprefix("docs/")
        path = ROOT / target
        is_in_site = bool(files.get_file_from_path(target))
        if path.is_dir() or (path.suffix == ".md" and not is_in_site):
            return f"`{target}`"
        if path.is_file() and not is_in_site:
            files.append(File.generated(config, target, abs_src_path=str(path)))
        return f"[{text}]({target})"

    return re.sub(r"\[([^]]*)\]\(([^)\s:]+)\)", in_site, markdown)
