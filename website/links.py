"""`course links URL`: where a copy of the course opens without an installation, by the address it is hosted at.

Binder builds from any git address that it can read, Codespaces and Colab from github.com alone, and nbgitpuller puts
any git repository onto a JupyterHub whose packages somebody else installs. `--write` puts the links and the address
into the README. What each service takes is in its own documentation: BinderHub's repository providers, GitHub's
"Creating an 'Open in Codespaces' badge", Colab's "Using Google Colab with GitHub", nbgitpuller's "URL options".
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from course_utils.files import write_whole
from course_utils.units import CourseError

FIRST = "notebooks/00_start_here.ipynb"
EXAMPLE = "https://github.com/OWNER/NAME"
LINKS = re.compile(r"(<!-- links[^>]*-->\n).*?(<!-- /links -->)", re.DOTALL)
CLONE = re.compile(r"^git clone \S+", re.MULTILINE)
SHORT = re.compile(r"(?:\w[\w.-]*@)([\w.-]+):(?!\d+/)(?!//)(.+)")  # git@host:owner/name, as ssh writes it


@dataclass(frozen=True)
class Repository:
    """Where the course is hosted: `host` ("gitlab.com"), `path` ("group/name") and `address`, which git can clone."""

    host: str
    path: str
    address: str

    @property
    def name(self) -> str:
        """Its folder after `git clone`."""
        return self.path.rsplit("/", 1)[-1]


def read_address(text: str) -> Repository:
    """The repository that an address names: as a browser shows it, as git clones it, or as ssh writes it.

    Raises:
        CourseError: it is no address of a repository on the web, or it carries a password.
    """
    given = text.strip()
    short = SHORT.fullmatch(given)
    parts = urlsplit(f"https://{short[1]}/{short[2]}" if short else given if "://" in given else f"https://{given}")
    wrong = f"{given!r} is not a repository's address: write one such as {EXAMPLE}"
    try:
        host, port = (parts.hostname or "").removeprefix("www."), parts.port
    except ValueError as error:
        raise CourseError(wrong) from error
    if parts.password or (parts.username and parts.scheme != "ssh"):
        raise CourseError(f"an address with a user or a password must not be published: write one such as {EXAMPLE}")
    path = parts.path.strip("/").removesuffix(".git")
    spelled = re.fullmatch(r"[\w.-]+(/[\w.~-]+)+", path) and re.fullmatch(r"([\w-]+\.)+[\w-]+", host)
    if parts.scheme not in ("https", "http", "ssh") or not spelled or parts.query or parts.fragment:
        raise CourseError(wrong)
    if ("/-/" in path) or (host == "github.com" and path.count("/") != 1):
        raise CourseError(f"{given!r} is a page inside a repository: write the repository's own, such as {EXAMPLE}")
    scheme, at = ("https", "") if parts.scheme == "ssh" else (parts.scheme, f":{port}" if port else "")
    return Repository(host, path, f"{scheme}://{host}{at}{parts.path.rstrip('/')}")


def binder(repository: Repository, branch: str, first: str = FIRST) -> str:
    """The link that builds the course on mybinder.org and opens JupyterLab on the first lesson, or another file."""
    provider = {"github.com": f"gh/{repository.path}", "gitlab.com": f"gl/{quote(repository.path, safe='')}"}
    source = provider.get(repository.host, f"git/{quote(repository.address, safe='')}")
    opened = quote(f"lab/tree/work/{first}", safe="")
    return f"https://mybinder.org/v2/{source}/{quote(branch, safe='')}?urlpath={opened}"


def codespaces(repository: Repository) -> str:
    """The link that makes a codespace; "" where the course is not on github.com."""
    return f"https://codespaces.new/{repository.path}" if repository.host == "github.com" else ""


def colab(repository: Repository, branch: str, first: str = FIRST) -> str:
    """The link that opens the first lesson, or another file, in Colab; "" where the course is not on github.com."""
    if repository.host != "github.com":
        return ""
    return f"https://colab.research.google.com/github/{repository.path}/blob/{quote(branch)}/{first}"


def colab_cell(repository: Repository) -> str:
    """What the first cell in Colab has to run before a lesson finds its modules."""
    return f"!git clone -q {repository.address}\n%cd {repository.name}\n%pip install -q -c constraints.txt -e ."


def nbgitpuller(repository: Repository, branch: str, hub: str, first: str = FIRST) -> str:
    """The link that puts the course onto a JupyterHub and opens the first lesson, or another file, there.

    Raises:
        CourseError: `hub` is no address.
    """
    parts = urlsplit(hub if "://" in hub else f"https://{hub}")
    if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc or " " in parts.netloc:
        raise CourseError(f"{hub!r} is not a JupyterHub's address: write one such as https://hub.example.edu")
    base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    opened = quote(f"lab/tree/{repository.name}/{first}", safe="")
    address, branch = quote(repository.address, safe=""), quote(branch, safe="")
    return f"{base}/hub/user-redirect/git-pull?repo={address}&branch={branch}&urlpath={opened}"


def said(repository: Repository, branch: str, hub: str) -> str:
    """All links as lines for a terminal, and why one is missing."""
    elsewhere = "only for repositories on github.com"
    opened, paste = colab(repository, branch), colab_cell(repository).splitlines()
    pulled = nbgitpuller(repository, branch, hub) if hub else ""
    needs = "the hub must have installed what pyproject.toml lists"
    lines = {
        "Binder": binder(repository, branch),
        "Codespaces": codespaces(repository) or elsewhere,
        "Colab": "\n  ".join([opened, "untested; the first cell must be", *paste]) if opened else elsewhere,
        "nbgitpuller": f"{pulled}\n  {needs}" if hub else "name your JupyterHub with --hub",
    }
    written = [f"{service:<13}{line}" for service, line in lines.items()]
    return "\n".join([*written, "Open each once before you hand it out: this command asks no service."])


def line_of(repository: Repository, branch: str, hub: str, first: str = FIRST) -> str:
    """All links to a file of the course, one line of Markdown."""
    links = [f"[Binder]({binder(repository, branch, first)})"]
    if codespaces(repository):
        links.append(f"[Codespaces]({codespaces(repository)})")
    if hub:
        links.append(f"[JupyterHub]({nbgitpuller(repository, branch, hub, first)})")
    if colab(repository, branch, first):
        cell = ", ".join(f"`{line}`" for line in colab_cell(repository).splitlines())
        links.append(f"[Colab]({colab(repository, branch, first)}), untested; run first: {cell}")
    return f"Open it in {' · '.join(links)}"


def filled(readme: str, repository: Repository, branch: str, hub: str) -> str:
    """The README's text with this address to clone and these links.

    Raises:
        CourseError: it has no place for them.
    """
    if not LINKS.search(readme) or not CLONE.search(readme):
        raise CourseError("README.md needs a line `git clone ADDRESS`, and lines <!-- links --> and <!-- /links -->")
    line = f"{line_of(repository, branch, hub)}\n"
    readme = LINKS.sub(lambda found: found[1] + line + found[2], readme)
    return CLONE.sub(lambda found: f"git clone {repository.address}", readme)


def links_command(arguments: Sequence[str], root: Path) -> int:
    """`course links`: print the links and, if asked, write them into the README."""
    parser = argparse.ArgumentParser(prog="course links", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", metavar="URL", help=f"where it is hosted, such as {EXAMPLE}")
    parser.add_argument("--branch", default="main", help="which branch to open (default: main)")
    parser.add_argument("--hub", default="", metavar="URL", help="your JupyterHub, for a link by nbgitpuller")
    parser.add_argument("--write", action="store_true", help="put them into README.md too")
    options = parser.parse_args(arguments)
    repository = read_address(options.url)
    if not re.fullmatch(r"[\w][\w./-]*", options.branch):
        raise CourseError(f"{options.branch!r} is not a branch's name")
    print(said(repository, options.branch, options.hub))
    if options.write:
        readme = root / "README.md"
        write_whole(readme, filled(readme.read_text(encoding="utf-8"), repository, options.branch, options.hub))
        print(f"written into {readme}")
    return 0
