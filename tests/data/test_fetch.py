"""Downloads from a server on this machine that breaks off, lies and refuses."""

from __future__ import annotations

import hashlib
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedhpc import registry
from fedhpc.data import fetch as module
from fedhpc.data._recipes import RECIPES
from fedhpc.data.fetch import RECORD, Download, Recipe, fetch
from fedhpc.errors import ConfigError, DatasetError

CONTENT = bytes(range(256)) * 4000  # about 1 MB
MD5 = hashlib.md5(CONTENT).hexdigest()


@dataclass
class Site:
    """What the server offers and how it behaves.

    Attributes:
        files: path -> content.
        break_after: bytes after which the next answers break off, one entry per answer.
        codes: statuses of the next answers.
        ranges: whether it honours Range.
        asked: (path, Range header) of every request.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.001)
    offered = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            offered.asked.append((self.path, wanted))
            content = offered.files.get(self.path)
            if offered.codes or content is None:
                self.send_error(offered.codes.pop(0) if offered.codes else 404)
                return
            start = int(wanted[6:-1]) if wanted and offered.ranges else 0
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            cut = offered.break_after.pop(0) if offered.break_after else len(content)
            self.wfile.write(content[start : start + cut])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    offered.address = f"http://127.0.0.1:{server.server_address[1]}"
    yield offered
    server.shutdown()
    server.server_close()
    thread.join()


def recipe(site: Site, md5: str | None = MD5, paths: tuple[str, ...] = ("/a.zip",)) -> dict[str, Recipe]:
    return {"it": Recipe((Download("a.zip", tuple(site.address + path for path in paths), md5),))}


def test_a_file_arrives_and_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = CONTENT
    told = fetch("it", tmp_path / "raw", recipe(site))
    assert (tmp_path / "raw" / "a.zip").read_bytes() == CONTENT
    assert f"fedhpc prepare it --raw {tmp_path / 'raw'}" in told
    fetch("it", tmp_path / "raw", recipe(site))
    assert len(site.asked) == 1
    assert sorted(p.name for p in (tmp_path / "raw").iterdir()) == ["a.zip", RECORD]


def test_a_broken_download_goes_on_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = CONTENT
    site.break_after = [1000, 0, 5000]
    seen: list[tuple[str, int, int | None]] = []
    fetch("it", tmp_path, recipe(site), progress=lambda *step: seen.append(step))
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert [wanted for _, wanted in site.asked] == [None, "bytes=1000-", "bytes=1000-", "bytes=6000-"]
    assert seen[-1] == ("a.zip", len(CONTENT), len(CONTENT))


def test_another_run_goes_on_too(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = CONTENT
    site.break_after = [500] + 10 * [0]
    with pytest.raises(DatasetError, match=r"connection lost after 500 of 1,024,000 bytes.*tried 5 times"):
        fetch("it", tmp_path, recipe(site))
    assert (tmp_path / "a.zip.part").stat().st_size == 500
    assert not (tmp_path / "a.zip").exists()
    site.break_after, site.asked = [], []
    fetch("it", tmp_path, recipe(site))
    assert site.asked == [("/a.zip", "bytes=500-")]
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_over(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"], site.ranges = CONTENT, False
    (tmp_path / "a.zip.part").write_bytes(CONTENT[:700])
    fetch("it", tmp_path, recipe(site))
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


def test_a_rest_of_something_longer_is_dropped(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = CONTENT
    (tmp_path / "a.zip.part").write_bytes(CONTENT + b"more")
    fetch("it", tmp_path, recipe(site))
    assert (tmp_path / "a.zip").read_bytes() == CONTENT


def test_what_was_whole_but_not_yet_checked_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    """Killed while it formed the sum, which takes a while for a large file."""
    site.files["/a.zip"] = CONTENT
    (tmp_path / "a.zip.part").write_bytes(CONTENT)
    fetch("it", tmp_path, recipe(site))
    assert (tmp_path / "a.zip").read_bytes() == CONTENT
    assert [wanted for _, wanted in site.asked] == [f"bytes={len(CONTENT)}-"]


def test_a_wrong_sum_is_refused_and_not_resumed(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = CONTENT[:-1] + b"!"
    with pytest.raises(DatasetError, match=rf"a\.zip: could not be fetched\n.*MD5 [0-9a-f]+, expected {MD5}"):
        fetch("it", tmp_path, recipe(site))
    assert sorted(p.name for p in tmp_path.iterdir()) == []
    (tmp_path / "a.zip").write_bytes(b"put here by hand")
    with pytest.raises(DatasetError, match="remove it to fetch it again"):
        fetch("it", tmp_path, recipe(site))
    assert (tmp_path / "a.zip").read_bytes() == b"put here by hand"


def test_without_a_published_sum_the_first_one_is_kept(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = CONTENT
    fetch("it", tmp_path, recipe(site, None))
    (tmp_path / "a.zip").write_bytes(CONTENT[:-1])
    with pytest.raises(DatasetError, match=f"expected {MD5}"):
        fetch("it", tmp_path, recipe(site, None))


def test_a_web_page_is_no_archive(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"] = b"\n<!DOCTYPE html><html>please sign in</html>"
    with pytest.raises(DatasetError, match="a web page came instead of the file"):
        fetch("it", tmp_path, recipe(site, None))
    assert not (tmp_path / "a.zip").exists()


def test_the_second_source_is_tried(site: Site, tmp_path: Path) -> None:
    site.files["/other/a.zip"] = CONTENT
    fetch("it", tmp_path, recipe(site, paths=("/a.zip", "/other/a.zip")))
    assert [path for path, _ in site.asked] == ["/a.zip", "/other/a.zip"]


def test_a_busy_server_is_asked_again_a_missing_file_is_not(site: Site, tmp_path: Path) -> None:
    site.files["/a.zip"], site.codes = CONTENT, [503, 429]
    fetch("it", tmp_path, recipe(site))
    assert len(site.asked) == 3
    site.asked.clear()
    with pytest.raises(DatasetError, match=r"http://127\.0\.0\.1:\d+/gone: HTTP 404 .*\n.*put the file there yourself"):
        fetch("it", tmp_path / "b", recipe(site, paths=("/gone",)))
    assert len(site.asked) == 1


def test_no_network_is_told_in_a_few_lines(tmp_path: Path, site: Site) -> None:
    nobody = {"it": Recipe((Download("a.zip", ("http://127.0.0.1:9/a.zip",)),))}
    with pytest.raises(DatasetError, match=r"127\.0\.0\.1:9/a\.zip: .*refused.*\n.*run the same command again"):
        fetch("it", tmp_path, nobody)


def test_by_hand_says_what_to_do_and_is_content_then(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"by hand into .*\n.*1\. open https?://.*\n.*\n.*PACS\.zip"):
        fetch("pacs", tmp_path)
    (tmp_path / "PACS.zip").write_bytes(b"")
    assert "fedhpc prepare pacs" in fetch("pacs", tmp_path)


def test_every_known_recipe_names_a_dataset() -> None:
    sources = registry.names("fedhpc.data.sources")
    assert set(RECIPES) <= set(sources)
    study = {"colored_mnist", "rotated_mnist", "vlcs", "pacs", "office_home", "terra_incognita", "domain_net"}
    assert study <= set(RECIPES)
    for name, known in RECIPES.items():
        archives = getattr(registry.load("fedhpc.data.sources", name).SOURCE, "archives", ())
        files = {download.file for download in known.downloads} | set(known.files)
        assert not archives or set(archives) <= files, name


def test_embedded_and_unknown_names(tmp_path: Path) -> None:
    assert "nothing to fetch" in fetch("rotated_digits", tmp_path)
    with pytest.raises(ConfigError, match=r"did you mean 'pacs'"):
        fetch("pac", tmp_path)


def test_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedhpc", "fetch"]
    done = subprocess.run([*command, "digits", "--raw", str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    by_hand = subprocess.run([*command, "vlcs", "--raw", str(tmp_path)], capture_output=True, text=True)
    assert by_hand.returncode == 1
    assert by_hand.stderr.startswith("fedhpc: error: vlcs: has to be fetched by hand")
    assert subprocess.run([*command, "nothing", "--raw", str(tmp_path)], capture_output=True).returncode == 2
