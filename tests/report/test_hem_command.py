from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fedhpc.cli import main
from tests.report.test_hem_runs import write as write_run

NAMES = (
    "FedAvg", "FedAvg_MAML", "FedAvg_Proto", "FedDyn", "FedDyn_MAML", "FedDyn_Proto", "SCAFFOLD", "SCAFFOLD_MAML",
    "SCAFFOLD_Proto",
)  # fmt: skip
TABLE_III = {
    "accuracy": (0.84, 0.88, 0.88, 0.85, 0.89, 0.89, 0.86, 0.87, 0.89),
    "convergence": (0.67, 0.90, 0.85, 0.69, 0.94, 0.92, 0.86, 0.86, 0.91),
    "computation": (0.12, 0.00, 0.78, 0.21, 0.56, 0.89, 0.44, 0.67, 0.87),
    "fairness": (1.00, 0.55, 0.36, 0.41, 0.00, 0.27, 0.59, 0.23, 0.05),
}
COMPUTED = {
    "iot": (0.6550, 0.5190, 0.6910, 0.5100, 0.5290, 0.7070, 0.6530, 0.6170, 0.6340),
    "smartphone": (0.6050, 0.5560, 0.7370, 0.5220, 0.6280, 0.7750, 0.6800, 0.6790, 0.7220),
    "institution": (0.78875, 0.64875, 0.66875, 0.5850, 0.52125, 0.66125, 0.70625, 0.60375, 0.5750),
}
"""What the paper's Table III gives with its Table II; the paper's own text quotes other numbers in 11 places."""
CURVES = {
    "target": 0.8,
    "max_rounds": 3,
    "algorithms": {
        name: {
            "base": base,
            "eval_rounds": [1, 2, 3],
            "client_accuracy": [[0.5, 0.6], [0.8, 0.9], [0.9 - i / 20, 0.9 + i / 50]],
            "t_train": [1.0 + i] * 3,
            "t_eval": [2.0 - i] * 3,
        }
        for i, (name, base) in enumerate((("FedAvg", None), ("FedAvg_MAML", "FedAvg")))
    },
}


def run(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Standard output of `fedhpc hem`, which must succeed."""
    with pytest.raises(SystemExit) as stopped:
        main(["hem", *map(str, words)])
    assert stopped.value.code == 0
    return capsys.readouterr().out


def fail(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Standard error of `fedhpc hem`, which must be refused."""
    with pytest.raises(SystemExit) as stopped:
        main(["hem", *map(str, words)])
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.fixture
def table_iii(tmp_path: Path) -> Path:
    indices = {name: {c: column[i] for c, column in TABLE_III.items()} for i, name in enumerate(NAMES)}
    path = tmp_path / "table.json"
    path.write_text(json.dumps({"indices": indices}))
    return path


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    path = tmp_path / "curves.json"
    path.write_text(json.dumps(CURVES))
    return path


def test_table_iii_gives_the_computed_columns(table_iii, capsys):
    found = json.loads(run(capsys, table_iii, "--json"))["hem"]
    assert list(found) == list(COMPUTED)
    for case, column in COMPUTED.items():
        assert found[case] == pytest.approx(dict(zip(NAMES, column, strict=True)), abs=1e-12)
    classes = {case: [sum(list(row.values())[i : i + 3]) / 3 for i in (0, 3, 6)] for case, row in found.items()}
    assert classes["iot"] == pytest.approx([0.6217, 0.5820, 0.6347], abs=5e-5)
    assert classes["smartphone"] == pytest.approx([0.6327, 0.6417, 0.6937], abs=5e-5)
    assert classes["institution"] == pytest.approx([0.7021, 0.5892, 0.6283], abs=5e-5)


def test_table_iii_with_the_weights_of_the_figure(table_iii, capsys):
    found = json.loads(run(capsys, table_iii, "--json", "--smartphone-fairness", 1))["hem"]["smartphone"]
    assert found["FedAvg"] == pytest.approx(0.561, abs=5e-4)
    assert found["FedDyn_Proto"] == pytest.approx(0.831, abs=5e-4)


def test_the_table_shows_indices_hem_bands_and_importances(table_iii, capsys):
    lines = run(capsys, table_iii).splitlines()
    row = next(line for line in lines if line.startswith("FedDyn_Proto"))
    assert row.split() == ["FedDyn_Proto", "0.890", "0.920", "0.890", "0.270",
                           "0.707", "Good", "0.775", "Good", "0.661", "Acceptable"]  # fmt: skip
    assert next(line for line in lines if line.startswith("Smartphone")).split()[1:] == ["2", "3", "3", "2"]


def test_curves_show_raw_quantities_and_personalization(curves, capsys):
    text = run(capsys, curves)
    assert "target 80 %, at most 3 rounds" in text
    assert "MPI %" in text
    assert "MPI: median over clients of the gain in accuracy over the same algorithm without" in text
    raw = next(line for line in text.split("worst tenth")[1].splitlines() if line.startswith("FedAvg_MAML"))
    assert raw.split()[1:] == ["88.50", "3.50", "85.00", "85.00", "0.998", "0.020", "0.215", "2", "1/1", "4"]
    found = json.loads(run(capsys, curves, "--json"))
    assert found["raw"]["FedAvg"]["tta_all"] == 6.0
    assert found["mpi_percent"] == {"FedAvg_MAML": pytest.approx(-1.6666666666666667)}
    assert found["mpi_excluded_clients"] == {"FedAvg_MAML": 0}


@pytest.mark.parametrize("seeds", [((0,), (0,)), ((0,), (1,)), ((0, 1), (0, 1)), (range(5), range(5))])
def test_intervals_are_of_several_runs_and_few_seeds_are_told(seeds, tmp_path, capsys):
    for algorithm, own in zip(("fedavg", "feddyn"), seeds, strict=True):
        for seed in own:
            write_run(tmp_path / f"{algorithm}{seed}", algorithm, seed=seed, seconds=2.0 + seed)
    text, latex = run(capsys, tmp_path, "--resamples", 50), run(capsys, tmp_path, "--resamples", 50, "--latex")
    times = json.loads(run(capsys, tmp_path, "--json", "--resamples", 50))["intervals"]["time_to_accuracy"]
    num = len(seeds[0])
    row = text.split("worst tenth")[1].splitlines()[2]
    assert ("[" in row) == (num > 1) == ("t-interval" in text)
    assert " 0.0 %" not in row
    assert (times["FedAvg"]["order"]["ci"] is None) == (num == 1)
    assert ("[low, high] of HEM: 95 % of 50 bootstrap resamples" in text) == (num > 1)
    for shown in (text, latex):
        assert (f"rest on {num} seeds: too few" in shown) == (num == 2)
        assert "MPI" not in shown


def test_every_switch_reaches_the_result(curves, capsys):
    def computation(*words: object) -> list[float]:
        tree = json.loads(run(capsys, curves, "--json", *words))
        return [tree["components"][name]["computation"] for name in ("FedAvg", "FedAvg_MAML")]

    assert computation() == [0.5, 0.0]
    assert computation("--computation", "minmax") == [1.0, 0.0]
    assert computation("--computation=fixed_reference=8") == [0.75, 0.5]
    assert computation("--clock", "all") == [0.0, 0.0]
    assert computation("--target", 0.99) == [0.0, 0.0]
    assert json.loads(run(capsys, curves, "--json", "--rounds", 2))["max_rounds"] == 2
    assert json.loads(run(capsys, curves, "--json", "--fairness", "linear"))["options"]["fairness"] == "linear"


def test_what_is_not_defined_is_null_and_a_dash_never_zero(tmp_path, capsys):
    alone = {**CURVES, "algorithms": {"FedAvg": CURVES["algorithms"]["FedAvg"]}}
    path = tmp_path / "alone.json"
    path.write_text(json.dumps(alone))
    found = json.loads(run(capsys, path, "--json"))
    assert found["hem"] == {case: {"FedAvg": None} for case in COMPUTED}
    assert found["band"] == {case: {"FedAvg": None} for case in COMPUTED}
    assert found["components"]["FedAvg"]["fairness"] is None
    assert found["flags"] == {"FedAvg": ["comparative_index_undefined"]}
    text = run(capsys, path)
    assert next(line for line in text.splitlines() if line.startswith("FedAvg ")).split()[3:] == ["-"] * 5
    assert "comparative_index_undefined: FedAvg" in text


def test_latex_escapes_names(curves, capsys):
    text = run(capsys, curves, "--latex")
    assert r"FedAvg\_MAML & 0.885 &" in text
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert r" & -- \\" in text


def test_files_and_plots_are_written(curves, tmp_path, capsys):
    out = tmp_path / "new" / "hem"
    text = run(capsys, curves, "--out", out)
    assert {path.name for path in out.iterdir()} == {
        "hem.txt", "hem.json", "hem.tex", "hem.html",
        *(f"hem_{case}.{form}" for case in COMPUTED for form in ("png", "svg"))
    }  # fmt: skip
    assert (out / "hem.txt").read_text() == text
    assert json.loads((out / "hem.json").read_text())["hem"]["iot"]["FedAvg"] > 0
    assert (out / "hem_iot.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert ElementTree.parse(out / "hem_iot.svg").getroot().tag.endswith("svg")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    run(capsys, curves, "--out", out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.filterwarnings("error")
def test_plots_of_odd_input_draw_without_a_warning(tmp_path, capsys):
    odd = {"_a$b%_{" + "x" * 60: {"accuracy": 1, "convergence": 1, "computation": 1, "fairness": 1}, "b": {}}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"indices": odd}))
    own = tmp_path / "own.yaml"
    own.write_text("use_cases: {a/b c: {accuracy: 1, convergence: 0, computation: 0, fairness: 0}}\nbands: {all: 0}\n")
    run(capsys, path, "--importances", own, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "hem_a_b_c.png").exists()


def test_own_importances_from_a_file(table_iii, tmp_path, capsys):
    path = tmp_path / "own.yaml"
    path.write_text("use_cases:\n  mine: {accuracy: high, convergence: 0, computation: low, fairness: 0}\n"
                    "bands: {Fine: '> 0.6', Poor: 0}\n")  # fmt: skip
    found = json.loads(run(capsys, table_iii, "--json", "--importances", path))
    assert list(found["hem"]) == ["mine"]
    assert found["hem"]["mine"]["FedAvg"] == pytest.approx((3 * 0.84 + 0.12) / 4)
    assert found["band"]["mine"]["FedAvg"] == "Fine"
    assert found["importances"]["mine"] == {"accuracy": 3, "convergence": 0, "computation": 1, "fairness": 0}
    assert "--smartphone-fairness: there is no use case" in fail(
        capsys, table_iii, "--importances", path, "--smartphone-fairness", 2
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--computation", "maximal"), "--computation must be one of zero_anchored, minmax"),
        (("--computation", "fixed_reference"), "needs seconds"),
        (("--computation", "fixed_reference=0"), "above 0 seconds"),
        (("--computation", "minmax=3"), "--computation must be one of"),
        (("--smartphone-fairness", "3"), "invalid choice"),
        (("--resamples", "-1"), "--resamples must be at least 0"),
        (("--target", "80"), "80 % is 0.8"),
        (("--importances", "absent.yaml"), "absent.yaml: no such configuration file"),
        (("--json", "--latex"), "not allowed with"),
        (("other.json",), "a file is judged alone"),
    ],
)
def test_bad_options_are_refused(curves, capsys, words, message):
    assert message in fail(capsys, curves, *words)


def test_bad_input_is_refused_by_name(tmp_path, capsys):
    path = tmp_path / "in.json"
    assert "in.json: cannot be read: No such file" in fail(capsys, path)
    path.write_text(json.dumps({"indices": {"A": {"accuracy": 84}}}))
    assert "in.json: indices.A.accuracy must be a fraction in [0, 1], got 84; is it in percent?" in fail(capsys, path)
    assert "no such directory" in fail(capsys, tmp_path / "absent")
    assert "holds no run" in fail(capsys, tmp_path)


def test_neither_torch_nor_mpi_is_imported(curves):
    code = (
        "import sys; sys.argv = ['fedhpc', 'hem', sys.argv[1]]\n"
        "from fedhpc.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stopped:\n    assert stopped.code == 0\n"
        "assert not {'torch', 'mpi4py', 'h5py', 'matplotlib'} & set(sys.modules), sorted(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(curves)], check=True, stdout=subprocess.DEVNULL)
