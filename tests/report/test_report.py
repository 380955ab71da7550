from __future__ import annotations

import json
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from fedhpc.errors import ConfigError, FedhpcError
from fedhpc.report import report
from fedhpc.report.collect import collect
from fedhpc.report.plots import _figure, accuracy_plots
from tests.report.synthetic import write_run

FILES = {
    "summary.json", "summary.txt", "summary.csv", "summary.tex", "report.html",
    "accuracy_rounds.png", "accuracy_rounds.svg", "accuracy_seconds.png", "accuracy_seconds.svg",
}  # fmt: skip


def test_one_run_gets_its_report_inside_and_nothing_else_changes(tmp_path):
    run = write_run(tmp_path / "a")
    before = {p.name: p.read_bytes() for p in run.iterdir()}
    made = report([run])
    assert made.directory == run / "report"
    assert {p.name for p in made.directory.iterdir()} == FILES == {p.name for p in made.files}
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()} == before
    assert (made.directory / "summary.txt").read_text() == made.text
    assert json.loads((made.directory / "summary.json").read_text())["runs"][0]["rounds"] == 3


def test_a_second_report_replaces_the_first(tmp_path):
    run = write_run(tmp_path / "a", finished=False)
    report([run])
    (run / "done").write_text('{"rounds": 3}')
    assert "finished" in report([run]).text
    assert {p.name for p in (run / "report").iterdir()} == FILES


def test_several_runs_share_a_report(tmp_path):
    runs = [write_run(tmp_path / "s" / name) for name in ("a", "b")]
    assert report(runs).directory == tmp_path / "s" / "report"
    assert len(report([tmp_path / "s"]).runs) == 2
    assert report(runs, tmp_path / "new" / "place").directory == tmp_path / "new" / "place"


def test_plots_are_the_same_bytes_every_time_and_well_formed(tmp_path):
    runs = collect([write_run(tmp_path / name) for name in ("a", "b")])
    first, second = accuracy_plots(runs), accuracy_plots(runs)
    assert first == second
    for name, content in first.items():
        if name.endswith(".svg"):
            assert ElementTree.fromstring(content).tag.endswith("svg")
        else:
            assert content[:8] == b"\x89PNG\r\n\x1a\n"
            width, height = struct.unpack(">II", content[16:24])
            assert width > 900
            assert height > 500


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "means",
    [(), (None, None), (0.3,), (0.0, 0.0), (1.0, 1.0), (0.2, None, 0.95)],
    ids=["nothing", "never evaluated", "one point", "all wrong", "all right", "gaps"],
)
def test_plots_of_odd_runs_draw_without_a_warning(tmp_path, means):
    run = write_run(tmp_path / "_a$b%_{", means or (None,), finished=False)
    if not means:
        (run / "metrics.jsonl").unlink()
    other = write_run(tmp_path / "ordinary")
    assert len(accuracy_plots(collect([run]))) == len(accuracy_plots(collect([run, other]))) == 4


@pytest.mark.filterwarnings("error")
def test_thirty_runs_with_long_names_fit(tmp_path):
    runs = [write_run(tmp_path / f"{'a_very_long_name_' * 5}{n}", target=0.5 + n / 100) for n in range(30)]
    assert len(accuracy_plots(collect(runs))) == 4


def legend(runs):
    figure = _figure(runs, against_time=False)
    names = [text.get_text() for box in figure.legends for text in box.get_texts()]
    return names, figure.axes[0].get_title(loc="left"), len(figure.axes[0].lines)


def test_a_legend_names_runs_kinds_or_nothing_but_never_forty(tmp_path):
    many = [
        write_run(tmp_path / f"{n:02}", target=None, algorithm=("fedavg", "fedprox")[n % 2], seed=n // 2)
        for n in range(14)
    ]
    runs = collect(many)
    assert legend(runs[:12])[0] == [f"{n:02}" for n in range(12)]
    names, title, drawn = legend(runs)
    assert names == ["fedavg (7 runs)", "fedprox (7 runs)"]
    assert title == "14 runs, coloured by algorithm; the table names them"
    assert drawn == 14
    kinds = [replace(run, algorithm=f"mine{n}") for n, run in enumerate(runs)]
    assert legend(kinds) == ([], "14 runs; the table names them", 14)


def test_long_names_in_the_legend_leave_the_axes_their_place(tmp_path):
    runs = collect([write_run(tmp_path / f"{n}", target=None) for n in range(14)])
    long = [replace(run, algorithm="a" * (10 + 70 * n // 13), objective="b" * 20) for n, run in enumerate(runs)]
    for some in (runs[:3], [replace(run, name="n" * 40) for run in runs[:3]], long[:12] + long[:2]):
        figure = _figure(some, against_time=False)
        figure.canvas.draw()
        axes = figure.axes[0]
        assert axes.get_position().width * figure.get_figwidth() > 4, "inches"
        assert axes.title.get_window_extent().x1 < figure.legends[0].get_window_extent().x0


def test_a_style_that_nothing_here_has_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="--style fedmedicl is for medical runs"):
        report([write_run(tmp_path / "a")], style="fedmedicl")
    assert not (tmp_path / "a" / "report").exists()


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no such directory"):
        report([tmp_path / "absent"])
    with pytest.raises(ConfigError, match="at least one"):
        report([])
    run = write_run(tmp_path / "a")
    (tmp_path / "file").write_text("")
    with pytest.raises(FedhpcError, match="cannot be written"):
        report([run], tmp_path / "file")
    with pytest.raises(FedhpcError, match="cannot be written"):
        report([run], tmp_path / "file" / "below")


def test_a_report_needs_no_torch_and_collecting_no_matplotlib(tmp_path: Path):
    run = write_run(tmp_path / "a")
    code = (
        "import sys\nfrom pathlib import Path\nfrom fedhpc.report import collect, report\n"
        f"collect([Path({str(run)!r})])\n"
        "early = {'matplotlib', 'numpy', 'torch'} & set(sys.modules)\n"
        f"report([Path({str(run)!r})])\n"
        "late = {'torch', 'mpi4py', 'h5py', 'matplotlib.pyplot'} & set(sys.modules)\n"
        "sys.exit(f'{early} {late}' if early or late else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
