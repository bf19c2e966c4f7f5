"""`course site`: the course as web pages that need no server, no kernel and no network.

Sphinx reads what `pages` makes ready, with MyST-NB for the notebooks and the Sphinx Book Theme.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from classroom.doctor import FIX_INSTALL
from classroom.notebooks import chosen, topics
from course_utils.files import write_whole
from course_utils.units import CourseError, format_bytes
from website import flipbook, links
from website.pages import Site, index, stage

NEEDED = ("sphinx", "myst_nb", "sphinx_book_theme")
STATIC = Path(__file__).with_name("static")
SCRIPTS = ("course.js", "explorer.js", "predict.js")


def site_command(arguments: Sequence[str], root: Path) -> int:
    """Build the site; its folder, size and time are printed.

    Raises:
        CourseError: an unknown topic or address, a package that is missing, a folder that cannot be written.
    """
    parser = argparse.ArgumentParser(prog="course site", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("topics", nargs="*", metavar="NN", help="topics such as 03; all when none is given")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write it; build/site in the course's folder")
    parser.add_argument("--url", default="", help="where your copy of the course is hosted, for links on each page")
    parser.add_argument("--branch", default="main", help="which branch those open (default: main)")
    parser.add_argument("--hub", default="", metavar="URL", help="your JupyterHub, for a link by nbgitpuller")
    options = parser.parse_args(arguments)
    began, out = time.monotonic(), options.out or root / "build" / "site"
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise CourseError(f"the site needs {missing[0]}; {FIX_INSTALL.replace('[lab]', '[lab,site]')}")
    try:
        build(root, out, root / "build" / "site-work", options.topics, options.url, options.branch, options.hub)
    except OSError as error:
        raise CourseError(f"{out} cannot be written: {error.strerror or error}") from None
    files = [path for path in out.rglob("*") if path.is_file()]
    size = format_bytes(sum(path.stat().st_size for path in files), 1)
    print(f"{out}/index.html: {len(files)} files, {size}, {time.monotonic() - began:.0f} s")
    return 0


def build(
    root: Path,
    out: Path,
    work: Path,
    names: Sequence[str] = (),
    url: str = "",
    branch: str = "main",
    hub: str = "",
) -> None:
    """Write the site to `out`, in place of what was built there before.

    Args:
        root: the course's folder.
        out: where to.
        work: what is made on the way; of it nothing is needed afterwards.
        names: topics such as "03"; all when none is given.
        url, branch, hub: where the course is hosted, as `course links` takes them; no links to it without a url.

    Raises:
        CourseError: an unknown topic or address, or a warning of Sphinx, such as a link that leads nowhere.
    """
    if out.exists() and any(out.iterdir()) and not (out / "objects.inv").exists():
        raise CourseError(f"{out} holds something else than a site; name an empty folder with --out")
    known = topics(root)
    wanted = chosen(names, known, "topic")
    shutil.rmtree(work / "source", ignore_errors=True)
    repository = links.read_address(url) if url else None

    def address(path: str) -> str:
        return f"{repository.address}/blob/{branch}/{path}" if repository else ""

    def opened(path: str) -> str:
        return links.line_of(repository, branch, hub, path) if repository else ""

    found = flipbook.books([known[name].name for name in wanted], root / "build" / "site-cache")
    site = Site(root, work / "source", wanted, address, opened, found)
    shutil.copytree(STATIC, site.folder / "_static")
    stage(site)
    write_whole(site.folder / "index.md", index(site, _guide(site.folder)))
    made = work / "made" / "site"  # MyST-NB puts a folder of its own beside the site's
    shutil.rmtree(made.parent, ignore_errors=True)
    _sphinx(site.folder, made, work / "doctrees")
    shutil.rmtree(made / "_sources", ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(made, out)


def _guide(folder: Path) -> list[tuple[str, list[str]]]:
    """The field guide's page, written by its own package if there is one, under its heading."""
    if find_spec("website.guide") is None or find_spec("website.guide.page") is None:
        return []
    write: Callable[[Path], str] = resolve_name("website.guide.page:write")
    return [("Field guide", [write(folder)])]


def settings() -> dict[str, Any]:
    """How Sphinx is set up: nothing is executed, and nothing comes from another server."""
    return {
        "project": "Deep networks on a GPU",
        "author": "the course authors",
        "copyright": "the course authors, CC BY 4.0",
        "html_title": "Deep networks on a GPU",
        "language": "en",
        "extensions": ["myst_nb"],
        "root_doc": "index",
        "exclude_patterns": ["_static", "_extra"],
        "nb_execution_mode": "off",
        "nb_ipywidgets_js": {},
        "myst_enable_extensions": [],
        "myst_heading_anchors": 4,
        "html_theme": "sphinx_book_theme",
        "html_static_path": ["_static"],
        "html_extra_path": ["_extra"],  # what a page's own HTML shows
        "html_context": {"default_mode": "auto"},
        "html_favicon": "_static/favicon.svg",
        "html_css_files": ["course.css"],
        "html_js_files": list(SCRIPTS),
        "html_copy_source": False,
        "html_show_sourcelink": False,
        "html_show_sphinx": False,
        "html_theme_options": {
            "navbar_persistent": [],
            "show_navbar_depth": 1,
            "show_toc_level": 1,
            "use_download_button": False,
            "use_fullscreen_button": False,
            "navigation_with_keys": False,
            "pygments_light_style": "a11y-high-contrast-light",
            "pygments_dark_style": "a11y-high-contrast-dark",
        },
    }


def _sphinx(source: Path, out: Path, doctrees: Path) -> None:
    import io

    from sphinx.application import Sphinx

    said = io.StringIO()
    app = Sphinx(
        str(source), None, str(out), str(doctrees), "html", settings(), status=None, warning=said, freshenv=True
    )
    app.build()
    lines = [line for line in said.getvalue().splitlines() if "WARNING" in line or "ERROR" in line]
    if lines:
        raise CourseError(f"the site has {len(lines)} faults: {'; '.join(lines[:5])}")
