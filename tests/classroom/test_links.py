"""`course links`: from an address that people write to links that services take."""

from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from classroom.cli import main
from course_utils.units import CourseError
from website.links import binder, codespaces, colab, nbgitpuller, read_address

ROOT = Path(__file__).resolve().parents[2]
LESSON = "notebooks/00_start_here.ipynb"
SAME = [
    "https://github.com/owner/name",
    "https://github.com/owner/name/",
    "https://www.github.com/owner/name.git",
    "http://github.com/owner/name",
    "github.com/owner/name",
    "git@github.com:owner/name.git",
    "ssh://git@github.com/owner/name.git",
    "  https://github.com/owner/name\n",
]


@pytest.mark.parametrize("address", SAME)
def test_however_an_address_is_written_it_is_one_repository(address: str) -> None:
    found = read_address(address)
    assert (found.host, found.path, found.name) == ("github.com", "owner/name", "name")
    assert urlsplit(found.address).scheme in ("http", "https")
    assert "@" not in found.address


@pytest.mark.parametrize(
    "address",
    [
        "", "nonsense", "owner/name", "https://github.com/owner", "file:///etc/passwd", "/home/me/course", "C:\\course",
        "https://github.com/owner/name?tab=readme", "https://host.edu/a b/c", "https://host.edu:port/a/b",
        "https://github.com/owner/name/tree/main", "https://gitlab.com/group/name/-/tree/main", "https://host.edu/a/](x)",
    ],
)  # fmt: skip
def test_what_is_no_repository_is_one_line(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["links", address]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "https://github.com/OWNER/NAME" in said.err


@pytest.mark.parametrize("address", ["https://me:secret@github.com/owner/name", "https://token@github.com/owner/name"])
def test_a_password_is_refused_and_not_repeated(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["links", address, "--write"]) == 2
    said = capsys.readouterr().err
    assert "password" in said
    assert "secret" not in said
    assert "token" not in said


@pytest.mark.parametrize(
    ("address", "provider", "spec"),
    [
        ("https://github.com/owner/name", "gh", "owner/name"),
        ("https://gitlab.com/group/sub/name", "gl", "group/sub/name"),
        ("https://git.host.edu/team/name.git", "git", "https://git.host.edu/team/name.git"),
    ],
)
def test_binder_takes_each_host_by_its_provider_and_opens_a_lesson(address: str, provider: str, spec: str) -> None:
    link = urlsplit(binder(read_address(address), "main"))
    parts = link.path.split("/")
    assert (link.netloc, parts[1], parts[2], parts[-1]) == ("mybinder.org", "v2", provider, "main")
    # Of a path with slashes, only GitHub's is not escaped: BinderHub splits the others at the first slash.
    assert len(parts) == (6 if provider == "gh" else 5)
    assert unquote("/".join(parts[3:-1])) == spec
    assert parse_qs(link.query) == {"urlpath": [f"lab/tree/work/{LESSON}"]}


def test_codespaces_and_colab_are_for_github_alone() -> None:
    here, elsewhere = read_address("https://github.com/owner/name"), read_address("https://gitlab.com/owner/name")
    assert codespaces(here) == "https://codespaces.new/owner/name"
    assert urlsplit(colab(here, "main")).path == f"/github/owner/name/blob/main/{LESSON}"
    assert codespaces(elsewhere) == colab(elsewhere, "main") == ""


def test_a_jupyterhub_pulls_the_repository_and_opens_a_lesson() -> None:
    repository = read_address("https://git.host.edu/team/name.git")
    for hub in ("https://hub.edu/", "hub.edu", "https://hub.edu"):
        link = urlsplit(nbgitpuller(repository, "spring/2027", hub))
        assert (link.netloc, link.path) == ("hub.edu", "/hub/user-redirect/git-pull")
        assert parse_qs(link.query) == {
            "repo": ["https://git.host.edu/team/name.git"],
            "branch": ["spring/2027"],
            "urlpath": [f"lab/tree/name/{LESSON}"],
        }
    for hub in ("not a hub", "ftp://hub.edu", "https://me:secret@hub.edu"):
        with pytest.raises(CourseError, match="is not a JupyterHub's address"):
            nbgitpuller(repository, "main", hub)


def test_links_lead_to_a_lesson_that_is_there() -> None:
    assert (ROOT / LESSON).is_file()


def copy_of_the_course(folder: Path) -> Path:
    """A folder that `course` takes for the course's, with its README."""
    for name in ("lessons", "notebooks", "classroom"):
        (folder / name).mkdir()
    (folder / "README.md").write_bytes((ROOT / "README.md").read_bytes())
    return folder / "README.md"


def test_written_into_the_readme_once_and_again_for_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = copy_of_the_course(tmp_path)
    before = readme.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["links", "https://github.com/owner/name", "--hub", "hub.edu", "--write"]) == 0
    printed, first = capsys.readouterr().out, readme.read_text(encoding="utf-8")
    for word in ("untested", "nbgitpuller", "%pip install -q -c constraints.txt -e ."):
        assert word in printed
    assert "\ngit clone https://github.com/owner/name gpu-course\n" in first
    for link in ("mybinder.org/v2/gh/owner/name", "codespaces.new/owner/name", "hub.edu/hub/user-redirect", "colab"):
        assert link in first
    assert "untested" in first
    changed = [line for line in first.splitlines() if line not in before.splitlines()]
    assert len(changed) == 2, "the address and the links, nothing else"

    assert main(["links", "https://gitlab.com/group/name", "--write"]) == 0
    second = readme.read_text(encoding="utf-8")
    assert "github.com" not in second
    assert "mybinder.org/v2/gl/group%2Fname/main" in second
    assert main(["links", "https://gitlab.com/group/name", "--write"]) == 0
    assert readme.read_text(encoding="utf-8") == second


def test_a_readme_without_a_place_for_links_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = copy_of_the_course(tmp_path)
    readme.write_text("# Mine\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["links", "https://github.com/owner/name", "--write"]) == 2
    assert "<!-- links -->" in capsys.readouterr().err
    assert readme.read_text(encoding="utf-8") == "# Mine\n"


def test_a_branch_must_look_like_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["links", "https://github.com/owner/name", "--branch", "a b"]) == 2
    assert "not a branch's name" in capsys.readouterr().err
