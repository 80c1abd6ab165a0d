"""Specs are read strictly: what is not understood is an error that says what would be."""

import math
from pathlib import Path

import jax.numpy as jnp
import pytest
import toys

from quietgrad.datasets.tasks import LEARNING_RATE, REGISTRY, Task
from quietgrad.study import read_spec as specs
from quietgrad.study.plan import plan
from quietgrad.study.user_module import Registry
from quietgrad.targets import Target

ROOT = Path(__file__).parents[2]
GRID = '[[grid]]\ntasks = ["counts"]\nfamilies = ["mean-field"]\nestimators = ["nocv"]\n'


def parse(text, folder=None):
    return specs.parse(text, "mine", folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[study]\ntitel = 'x'\n" + GRID, "'titel'.*title"),
        ("[stdy]\n" + GRID, "'stdy'.*study"),
        (GRID + "step = 3", "'step'.*Did you mean 'steps'"),
        ("[defaults]\nrep = 3\n" + GRID, "'rep'.*reps"),
        ("[study]\ntitle = 'x'", "at least one"),
        ("grid = 3", "at least one"),
        ("[[grid]]\ntasks = ['counts']\nfamilies = ['mean-field']", "no estimators and no methods"),
        (GRID.replace('["nocv"]', "[]"), "no estimators and no methods"),
        (GRID + "methods = 'auto'", "methods must be a list"),
        (GRID + "methods = [{name = 'auto', setting = {}}]", "'setting'.*settings"),
        (GRID + "steps = 0", "steps must be a whole number of at least 1"),
        (GRID + "steps = 1.5", "steps must be a whole number"),
        (GRID + "draws = 10", "draws must be a list"),
        (GRID + "draws = []", "draws must be a list"),
        (GRID + "learning_rate = -1", "learning_rate must be a positive"),
        (GRID + "light_evaluation = 1", "light_evaluation must be true or false"),
        (GRID + "evaluate_every = 20\nvariance_every = 30", "multiple of evaluate_every"),
        (GRID + "group = 3", "group must be a text"),
        ("[study]\ntimeout = 0\n" + GRID, "timeout must be a positive"),
        ("[study\n", "not valid TOML"),
        (GRID.replace('["nocv"]', "[{name = 'nocv', setting = {}}]"), "'setting'.*settings"),
        (GRID.replace('["nocv"]', "[{name = 'nocv', settings = {draws = 3}}]"), "in the grid"),
        (GRID.replace('["nocv"]', "[{label = 'x'}]"), "name in estimators must"),
    ],
)
def test_what_is_not_understood_is_an_error(text, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        parse(text, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nocv", "nocw", "unknown estimator 'nocw'.*Did you mean 'nocv'"),
        ("counts", "count", "unknown task 'count'"),
        ("mean-field", "meanfield", "unknown family 'meanfield'"),
        ('"nocv"', "{name = 'zvcv-gd', settings = {ordr = 2}}", "'ordr'.*order"),
        ('"nocv"', "{name = 'zvcv-gd', settings = {order = 7}}", "7"),
        ('["nocv"]', "[]\nmethods = ['atuo']", "unknown method 'atuo'.*Did you mean 'auto'"),
        ('["nocv"]', "[]\nmethods = [{name = 'auto', settings = {gian = 1}}]", "'gian'.*gain"),
        ('["nocv"]', "[]\nmethods = ['sgd']", "needs an estimator"),
        ('["nocv"]', "[]\nmethods = [{name = 'sgd', settings = {estimator = 'quit'}}]", "'quiet'"),
        (
            '["nocv"]',
            "[]\nmethods = [{name = 'sgd', settings = {estimator = 'quiet', schedule = 'cosin'}}]",
            "unknown schedule 'cosin'",
        ),
    ],
)
def test_unknown_names_are_found_before_anything_runs(old, new, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        plan(parse(GRID.replace(old, new), tmp_path))


def test_defaults_reach_every_grid_and_labels_name_settings(tmp_path):
    text = "[defaults]\nreps = 3\nestimators = [{name = 'zvcv-gd', settings = {order = 2}}]\n"
    block = "[[grid]]\ntasks = ['counts']\nfamilies = ['mean-field']\n"
    first, second = parse(text + block + block + "reps = 4", tmp_path).grids
    assert (first.reps, second.reps) == (3, 4)
    assert first.estimators[0].label == "zvcv-gd order 2"
    assert first.estimators[0].settings == {"order": 2}


def test_overrides_reach_every_grid(tmp_path):
    changed = parse(GRID + GRID, tmp_path).override(reps=7, steps=11)
    assert [(grid.reps, grid.steps) for grid in changed.grids] == [(7, 11), (7, 11)]
    with pytest.raises(ValueError, match="reps"):
        changed.override(reps=0)


def test_loading_by_name_and_by_path(tmp_path):
    assert {"paper", "quick", "smoke"} <= set(specs.shipped())
    toys.spec(tmp_path)
    assert specs.load(str(tmp_path / "own.toml")).name == "own"
    with pytest.raises(ValueError, match=r"unknown study 'quik'.*'quick'.*\.toml"):
        specs.load("quik")
    with pytest.raises(FileNotFoundError, match="no file"):
        specs.load(str(tmp_path / "none.toml"))
    (tmp_path / "status.toml").write_text(GRID)
    with pytest.raises(ValueError, match="cannot be called"):
        specs.load(str(tmp_path / "status.toml"))


def test_a_module_must_exist_and_define_something_of_its_own(tmp_path):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "taken.py").write_text("TASKS = {'frisk': lambda: None}")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    (tmp_path / "wrong.py").write_text("ESTIMATORS = ['nocv']")

    def using(name):
        return plan(parse(f"[study]\nmodule = '{name}'\n" + GRID, tmp_path))

    with pytest.raises(FileNotFoundError, match=r"none\.py"):
        using("none.py")
    with pytest.raises(ValueError, match="none of TASKS, ESTIMATORS and FAMILIES"):
        using("empty.py")
    with pytest.raises(ValueError, match="'frisk', which quietgrad has already"):
        using("taken.py")
    with pytest.raises(ValueError, match="importing broken.py failed: ModuleNotFoundError"):
        using("broken.py")
    with pytest.raises(TypeError, match="ESTIMATORS in wrong.py must be a dict"):
        using("wrong.py")


def test_a_chapter_is_found_beside_the_spec_and_that_of_a_shipped_one_in_the_checkout(tmp_path):
    assert specs.load("quick").chapter == ROOT / "reproduction" / "paper"
    # An installed package has no repository beside it.
    assert specs.load("quick", checkout=tmp_path).chapter is None
    with pytest.raises(FileNotFoundError, match="chapter .*own, which is not a package"):
        parse("[study]\nchapter = 'own'\n" + GRID, tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("")
    assert parse("[study]\nchapter = 'own'\n" + GRID, tmp_path).chapter == tmp_path / "own"


def test_a_module_may_bring_a_family(tmp_path):
    (tmp_path / "own.py").write_text(
        "import quietgrad as qg\nclass Own(qg.MeanField):\n    pass\nFAMILIES = {'own': Own}\n"
    )
    (tmp_path / "wrong.py").write_text("FAMILIES = {'own': lambda: None}\n")

    def using(name):
        grid = GRID.replace("mean-field", "own")
        return plan(parse(f"[study]\nmodule = '{name}'\n" + grid, tmp_path))

    assert {job.cell.family for job in using("own.py")} == {"own"}
    with pytest.raises(TypeError, match="must be a class of AbstractFamily"):
        using("wrong.py")


@pytest.fixture
def without_data(monkeypatch):
    """Any registered task, without its file."""

    def task(self, name):
        entry = REGISTRY[name]
        train = Target.from_logdensity(lambda z: -jnp.sum(z**2), dim=1)
        return Task(name, name, train, None, 1, entry.batch_size, False, entry.real_nvp_rate)  # noqa: FBT003

    monkeypatch.setattr(Registry, "task", task)


@pytest.mark.usefixtures("without_data")
def test_paper_is_the_whole_grid():
    jobs = plan(specs.load("paper"))
    main = [job for job in jobs if job.cell.group == "main"]
    assert len(main) == 4 * 3 * 3 * 2 * 5
    assert len(jobs) - len(main) == 3 * 5
    for job in main:
        network_flow = job.cell.task.startswith("redwine") and job.cell.family == "real-nvp"
        rate = 0.001 if network_flow else LEARNING_RATE
        assert job.cell.learning_rate == rate
        if job.cell.estimator == "quadcv":
            assert math.isclose(job.cell.settings.get("rate", 0.01), rate)
        assert job.cell.batch_size == (32 if job.cell.task == "redwine-mini" else None)
        how = job.schedule
        assert (how.evaluate_every, how.elbo_draws) == (50, 500)
        assert (how.variance_every, how.variance_repeats) == (50, 100)
        assert (how.lppd_every, how.lppd_draws) == (50 if job.cell.task == "redwine" else 0, 1000)
    ablations = {job.cell.label: job.cell for job in jobs if job.cell.group == "ablation"}
    assert {name: dict(cell.settings) for name, cell in ablations.items()} == {
        "zvcv-gd order 2": {"order": 2},
        "zvcv-gd 20 steps": {"steps": 20},
        "zvcv-gd to convergence": {"steps": "converge"},
    }


def test_quick_needs_no_download():
    jobs = plan(specs.load("quick"))
    assert all(REGISTRY[job.cell.task].file is None for job in jobs)
    main = [job.cell for job in jobs if job.cell.group == "main"]
    places = {(cell.task, cell.family) for cell in main}
    assert len(places) == 3
    # On every panel: the paper's estimators, and what is recommended instead.
    wanted = {"nocv", "zvcv-gd", "quadcv", "quiet", "auto", "saa"}
    for place in places:
        assert {cell.label for cell in main if (cell.task, cell.family) == place} == wanted
    assert all(job.timed for job in jobs)
    # Claims are judged by intervals over repetitions.
    assert min(max(c.rep for c in main if c.label == label) for label in wanted) >= 2


REPOSITORY = [
    "benchmarks/specs/time_to_target.toml",
    *(f"reproduction/{path.name}" for path in sorted((ROOT / "reproduction").glob("*.toml"))),
]


@pytest.mark.parametrize("path", REPOSITORY)
@pytest.mark.usefixtures("without_data")
def test_specs_of_the_repository_name_what_there_is(path):
    assert plan(specs.load(str(ROOT / path)))


@pytest.mark.usefixtures("without_data")
def test_what_stands_beside_the_papers_grid_has_its_tasks_families_and_starts():
    names = ("trajectories", "ours", "methods")
    paper, ours, methods = (plan(specs.load(str(ROOT / f"reproduction/{name}.toml"))) for name in names)
    starts, beside, ending = (
        {(j.cell.task, j.cell.family, j.seed) for j in jobs} for jobs in (paper, ours, methods)
    )
    assert beside < starts
    assert {start for start in ending if start[1] != "full-rank"} < starts
    assert {start[:2] for start in beside} == {start[:2] for start in starts}
    assert {job.cell.label for job in methods} == {"saa", "auto", "bam"}
    assert {"quiet", "rqmc", "quadcv-fast"} < {job.cell.label for job in ours}
    assert all(job.timed == job.cell.ends_itself for job in (*ours, *methods))


def test_only_narrows_by_any_key_and_knows_what_there_is(tmp_path):
    spec = toys.spec(tmp_path)

    def names(*only):
        return [job.cell.name for job in plan(spec, only)]

    assert names("estimator=stl", "rep=1") == ["main/gauss/mean-field/stl/L2/rep1"]
    assert len(names("estimator=stl", "estimator=nocv")) == 4
    assert len(names("group=main", "draws=2", "family=mean-field", "task=gauss")) == 4
    with pytest.raises(ValueError, match="unknown task in this study: 'frisk'; known: gauss"):
        names("task=frisk")
    with pytest.raises(ValueError, match="key=value"):
        names("gauss")
    with pytest.raises(ValueError, match="key of task, family"):
        names("steps=3")
