"""A page as Markdown, by the library markdownify (extra `fetch`)."""

import re
from collections.abc import Iterator
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup, Tag
from markdownify import MarkdownConverter

MAX_DEPTH = 512
"""Elements inside one another; a page that is deeper is shown as it came."""
UNSEEN = ("script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "link", "meta")
"""Elements that no reader of a text sees."""
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")


def to_markdown(page: str, url: str) -> str:
    """The page, its title first; as it came where it cannot be converted. CPU work, bound by its length."""
    try:
        soup = BeautifulSoup(page, "html.parser")
        if _depth(soup) > MAX_DEPTH:
            return page
        title = " ".join(soup.title.get_text().split()) if soup.title is not None else ""
        for tag in soup.find_all([*UNSEEN, "title"]):
            tag.decompose()
        _tidy_links(soup, url)
        text = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(soup)
    except Exception:  # RecursionError and whatever the libraries meet in the pages of strangers
        return page
    text = _BLANK_LINES.sub("\n\n", text).strip()
    return f"# {title}\n\n{text}" if title and title not in text[: 2 * len(title)] else text


def _depth(soup: BeautifulSoup) -> int:
    """How many elements stand inside one another, at most; without recursion."""
    depths: dict[int, int] = {id(soup): 0}
    for tag in _tags(soup):
        depths[id(tag)] = depths[id(tag.parent)] + 1
    return max(depths.values())


def _tags(soup: BeautifulSoup) -> Iterator[Tag]:
    return (element for element in soup.descendants if isinstance(element, Tag))


def _tidy_links(soup: BeautifulSoup, url: str) -> None:
    """Links lead from anywhere; pictures that are written into the page go."""
    for tag in soup.find_all(["a", "img"]):
        name = "href" if tag.name == "a" else "src"
        link = str(tag.get(name) or "").strip()
        try:
            link = urljoin(url, link) if link and not link.startswith("#") else ""
            is_web = urlsplit(link).scheme in ("http", "https", "mailto")
        except ValueError:
            is_web = False
        if is_web:
            tag[name] = link
        elif tag.name == "img":
            tag.decompose()
        else:
            tag.unwrap()
