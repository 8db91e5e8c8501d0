"""Hooks of mkdocs: pages from the top of the repository, all options, a page per method and per package, tabs."""

import os
import pkgutil
import re
import runpy
from pathlib import Path
from textwrap import indent

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "README.zh.md", "CONTRIBUTING.md", "CHANGELOG.md")
TAB = re.compile(r"^\*\*(Command line|Python)\*\*\n\n(```.*?^```\n|(?:    [^\n]*\n|\n(?=    ))+)", re.DOTALL | re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the navigation of the methods and of the reference."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    options = runpy.run_path(str(ROOT / "docs" / "options.py"))["page"]
    files.append(File.generated(config, "options.md", content=options()))
    modules = [found.name for found in pkgutil.iter_modules([str(ROOT / "simcse_pl")]) if found.name[0] != "_"]
    for name in modules:
        content = f"---\ntitle: {name}\n---\n::: simcse_pl.{name}\n"
        files.append(File.generated(config, f"reference/{name}.md", content=content))
    methods = ["methods.md", *(f"methods/{page.name}" for page in sorted((ROOT / "docs" / "methods").glob("*.md")))]
    config.nav.insert(3, {"Methods": methods})
    config.nav.append({"Reference": ["options.md", *(f"reference/{name}.md" for name in modules)]})
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the repository's links work in the site, and a tab of each block below **Command line** or **Python**.

    A linked file that is not a page is copied to the site. A link to a folder, or to Markdown that is not a page,
    becomes its name.
    """
    markdown = TAB.sub(lambda tab: f'=== "{tab[1]}"\n\n{indent(tab[2], "    ")}', markdown)

    markdown = markdown.replace('<img src="docs/', '<img src="')
    folder = Path(page.file.abs_src_path).parent if page.file.abs_src_path else ROOT
    from_page = Path(page.file.src_uri).parent

    def in_site(link: re.Match[str]) -> str:
        text, target = link.groups()
        path, _, heading = target.partition("#")
        source = folder / path
        if not path or not source.exists():
            return link[0]
        place = source.resolve().relative_to(ROOT)
        name = place.as_posix().removeprefix("docs/")
        if source.is_dir() or (source.suffix == ".md" and not files.get_file_from_path(name)):
            return f"`{place}`"
        if not files.get_file_from_path(name):
            files.append(File.generated(config, name, abs_src_path=str(ROOT / place)))
        return f"[{text}]({os.path.relpath(name, from_page)}{'#' * bool(heading)}{heading})"

    return re.sub(r"\[([^]]*)\]\(([^)\s:]+)\)", in_site, markdown)
