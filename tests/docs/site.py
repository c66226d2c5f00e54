"""Builds the site (docs/site) and reads all of its pages, those of the references as well: every link inside the site leads to a file,
every '#...' to an anchor, every page of docs/ is in the navigation.

    python3 tests/docs/site.py BUILD [--without-references]
"""

import html.parser
import pathlib
import subprocess
import sys
import tempfile
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOT_PAGES = {"docs/reference/c.md"}  # the first page of Doxygen's


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors, self.in_navigation = set(), {"", "top"}, set()
        self.feed(path.read_text(encoding="utf-8", errors="replace"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        link = attributes.get("href") or attributes.get("src")
        if link and not urllib.parse.urlsplit(link).scheme and not link.startswith("//"):
            self.links.add(link)
            if "md-nav__link" in (attributes.get("class") or ""):
                self.in_navigation.add(link)


def faults_of(site):
    """What is wrong with the links of the HTML files below `site`, and how many there are."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    faults = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urllib.parse.urlsplit(link)
            # The page of the error 404 is shown under any address, so its links begin with a '/'.
            target = urllib.parse.unquote(parts.path)
            to = site / target.lstrip("/") if target.startswith("/") else path.parent / target if target else path
            to = to.resolve() / "index.html" if to.is_dir() else to.resolve()
            anchor = urllib.parse.unquote(parts.fragment)
            if not to.exists():
                faults.append(f"{path.relative_to(site)}: {link} leads to no file")
            elif site not in to.parents:
                faults.append(f"{path.relative_to(site)}: {link} leaves the site")
            elif to in pages and anchor not in pages[to].anchors and not anchor.startswith("__"):
                faults.append(f"{path.relative_to(site)}: {link} leads to no anchor")
    return faults, sum(len(page.links) for page in pages.values())


def lost_pages(site):
    """Pages of docs/ and of the root folder that no entry of the navigation shows."""
    shown = {(site / urllib.parse.unquote(link)).resolve() for link in Page(site / "index.html").in_navigation}
    for path in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")]):
        name = path.relative_to(ROOT).as_posix()
        if name in NOT_PAGES or name == "README.md":
            continue
        place = name.removeprefix("docs/") if name.startswith("docs/") else f"project/{name.lower()}"
        if site / pathlib.Path(place.replace("README.md", "index.md")).with_suffix(".html") not in shown:
            yield f"{name} is not in the navigation: add it to docs/site/mkdocs.yml"


def finds_faults():
    """A check that finds nothing wrong in broken pages would be worth nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "a.html").write_text('<a href="b.html">, <a href="b.html#there">, <a href="b.html#gone">, <a href="c.html">, <img src="d.svg">')
        (folder / "b.html").write_text('<p id="there"><a href="https://example.org/"><a href="../b.html">')
        return len(faults_of(folder)[0]) == 4


def main():
    build, *options = sys.argv[1:] or sys.exit(__doc__)
    if not finds_faults():
        sys.exit("site.py: the check does not find broken links")
    if subprocess.run(["bash", ROOT / "docs/site/build.sh", *options, build]).returncode != 0:
        sys.exit("site.py: the site does not build; the lines above say why")
    site = pathlib.Path(build).resolve() / "site"
    faults, links = faults_of(site)
    faults += lost_pages(site)
    for fault in faults[:100]:
        print(fault)
    print(f"{links} links, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
