"""What MkDocs does not do by itself: pages made from files outside docs/, links to such files, the navigation's '*', tabs, figures."""

import fnmatch
import logging
import pathlib
import posixpath
import re

from mkdocs.structure.files import File
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Code is skipped: only what follows it in this pattern is a link's target.
TARGET = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1|(`+).+?\2|(?<=\]\()(?P<target>[^)\s]+)", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r'<p>(<img [^>]*?src="([^"]+)"[^>]*>)</p>')
TABS = re.compile(r"^<!-- tabs: (.+) -->$", re.MULTILINE)
LANGUAGES = ("c", "python", "java", "csharp")
REFERENCES = ("options.md", "command.md", *(f"{language}/index.html" for language in LANGUAGES))
BUTTONS = "[Get started](python.md){ .md-button .md-button--primary } [When to use it](when_to_use.md){ .md-button }\n"

# Python's Markdown would take these for text, or for a list's end; a forge would not.
SHALLOW = re.compile(r"^ {1,3}(?:[-*+] |\d+\. |```|~~~).*|^[^-*\d\s|<>#`:].*\n(?=[-*+] )", re.MULTILINE)

log = logging.getLogger("mkdocs.hooks.site")
places = {}  # page of the site -> its file, relative to ROOT
taken = set()  # files of docs/ that MkDocs takes as they are


def target_of(place, link):
    """The file of the repository that `link` names on the page of the file `place`; None where it names none."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:|/", path):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    if path.startswith(".."):
        return None
    if (ROOT / path / "README.md").exists():
        return f"{path}/README.md"
    return path if (ROOT / path).exists() else None


def links_in(markdown):
    return [match["target"] for match in TARGET.finditer(markdown) if match["target"]]


def page_of(place):
    """Where the site has a file of the repository."""
    if (ROOT / place).is_dir():
        return f"source/{place}/index.md"
    if place.startswith("docs/") and place.removeprefix("docs/") in taken:
        return place.removeprefix("docs/")
    if place == "README.md":
        return "index.md"
    if place.endswith(".md"):
        return f"project/{place.lower()}" if "/" not in place else f"source/{place}"
    return f"source/{place}.md"


def contents(place):
    """The Markdown of a page that has no file in docs/."""
    path = ROOT / place
    head = "---\nsearch: {exclude: true}\nhide: [toc]\n---\n"
    if path.is_dir():
        files = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        return f"{head}# {place}\n\n" + "\n".join(f"- [{file}]({file})" for file in files) + "\n"
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".md":
        return text
    try:
        language = get_lexer_for_filename(path.name).aliases[0]
    except ClassNotFound:
        language = "text"
    return f"{head}# {place}\n\n``````{language}\n{text}\n``````\n"


def add_pages(files, config):
    """The Markdown files of the root folder, and whatever pages link to outside docs/."""
    taken.clear()
    taken.update(file.src_uri for file in files if file.inclusion.is_included())
    places.clear()
    places.update({file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()})
    unread = {place: (ROOT / place).read_text(encoding="utf-8") for place in places.values()}
    wanted = [path.name for path in sorted(ROOT.glob("*.md"))]
    while wanted:
        for place in wanted:
            places[page_of(place)] = place
            unread[place] = contents(place)
            files.append(File.generated(config, page_of(place), content=unread[place]))
        found = {target_of(base_of(place), link) for place, text in unread.items() for link in links_in(text)} - {None}
        wanted = sorted(place for place in found if page_of(place) not in {*places, *taken})
        unread = {}


def base_of(place):
    """A place beside which the targets of the page's links are: within a folder, if the page lists one."""
    return f"{place}/." if (ROOT / place).is_dir() else place


def add_references(files, config):
    folder = pathlib.Path(config.extra["references"])
    for page in REFERENCES[:2]:
        files.append(File.generated(config, f"reference/{page}", abs_src_path=str(folder / page)))
    for path in sorted(path for language in LANGUAGES for path in (folder / language).rglob("*")):
        name = f"reference/{path.relative_to(folder).as_posix()}"
        if path.suffix == ".html":
            files.append(File.generated(config, name, content=dressed(path.read_text(encoding="utf-8"), name)))
        elif path.is_file() and path.suffix != ".md":  # javadoc's licences, which its scripts contain, too
            files.append(File.generated(config, name, abs_src_path=str(path)))


def dressed(html, name):
    """A page of a reference, with the site's fonts and a way back to it."""
    up = "../" * name.count("/")
    style = f'<link rel="stylesheet" href="{up}reference.css">'
    back = f'<a class="to-site" href="{up}index.html">EchoTrain documentation</a>'
    html = re.sub("</head>", style + "</head>", html, count=1, flags=re.IGNORECASE)
    html = re.sub("</body>", back + "</body>", html, count=1, flags=re.IGNORECASE)
    return html.replace("<body", '<body class="csharp"', 1) if name.startswith("reference/csharp/") else html


def expanded(entry, pages, named):
    """The entries that stand in the navigation for one of mkdocs.yml: none, one, or as many as match its '*'."""
    if isinstance(entry, str):
        if "*" not in entry:
            return [entry]
        return sorted(page for page in pages if fnmatch.fnmatchcase(page, entry) and page not in named)
    (title, below), = entry.items()
    if isinstance(below, str):
        return [entry]
    below = [new for old in below for new in expanded(old, pages, named)]
    return [{title: below}] if below else []


def without(nav, pages):
    """The navigation without some pages and without what then is empty."""
    kept = []
    for entry in nav:
        (title, below), = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(below, list):
            below = without(below, pages)
        if below and below not in pages:
            kept.append({title: below} if title else below)
    return kept


def entries(nav):
    for entry in nav:
        below = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from [below] if isinstance(below, str) else entries(below)


def on_files(files, config):
    add_pages(files, config)
    if config.extra["references"]:
        add_references(files, config)
    else:
        config.nav = without(config.nav, [f"reference/{name}" for name in REFERENCES])
    pages = {file.src_uri for file in files.documentation_pages()}
    named = set(entries(config.nav))
    config.nav = [new for old in config.nav for new in expanded(old, pages, named)]
    return files


def relinked(markdown, page):
    """With links to files that the site has in other places than the repository."""
    place = places[page]
    base = base_of(place)

    def link(match):
        target = match["target"] and target_of(base, match["target"])
        if not target:
            return match.group()
        anchor = match["target"].partition("#")[1:]
        return posixpath.relpath(page_of(target), posixpath.dirname(page)) + "".join(anchor)

    return TARGET.sub(link, markdown)


def ten_lines(match):
    """`<!-- tabs: c.md, python.md -->` becomes the first programs of these pages, as tabs."""
    tabs = []
    for page in match.group(1).split(", "):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        language = re.search("^# EchoTrain for (.*)", text).group(1)
        for name, code in re.findall(r"^## Ten lines(?: of ([^\n]*))?\n\n(```.*?^```)", text, re.DOTALL | re.MULTILINE):
            tabs.append(f'=== "{name or language}"\n\n' + "\n".join("    " + line for line in code.splitlines()))
    return "\n\n".join(tabs)


def on_page_markdown(markdown, page, config, files):
    name = page.file.src_uri
    if name not in places:  # of the references
        return markdown
    without_code = TARGET.sub(lambda match: match.group().partition("\n")[0] if match[1] else "", markdown)
    for match in SHALLOW.finditer(without_code):
        log.warning("%s: before a list an empty line is needed, and four spaces before what belongs to an item: '%s'", places[name],
                    match.group().strip()[:60])
    markdown = TABS.sub(ten_lines, relinked(markdown, name))
    markdown = re.sub(r"^(#+ .*\w)#$", r"\1\#", markdown, flags=re.MULTILINE)  # "C#" is not the end of a heading
    if name == "index.md":  # the README's title and first paragraph, and two buttons
        head, picture, rest = markdown.partition("\n![")
        page.meta["hide"] = ["navigation"]
        markdown = f'<div class="hero" markdown="1">\n\n{head}\n{BUTTONS}\n</div>\n{picture}{rest}'
    return markdown


def on_page_content(html, page, config, files):
    return FIGURE.sub(r'<figure><a href="\2">\1</a></figure>', html)
