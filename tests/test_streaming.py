"""Rows that stay on disk: every row is visited, nothing is loaded whole, and answers are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.evaluation import metrics
from quietgrad.session import streaming
from quietgrad.targets import MappedRows

ROWS, DIM = 3000, 2


def log_prior(z):
    return -0.5 * z @ z


def log_likelihood(z, rows):
    return -0.5 * (rows["y"] - rows["x"] @ z) ** 2


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, DIM))
    return {"x": x, "y": x @ [1.0, -2.0] + rng.standard_normal(ROWS)}


@pytest.fixture(scope="module")
def files(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, values in data.items():
        np.save(folder / f"{name}.npy", values)
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in data}


@pytest.fixture(scope="module")
def blocks(data):
    cuts = [0, 700, 1300, 1301, ROWS]
    return [
        {name: values[a:b] for name, values in data.items()}
        for a, b in zip(cuts[:-1], cuts[1:], strict=True)
    ]


@pytest.fixture
def small(monkeypatch):
    """Pools and blocks so small that many are needed."""
    monkeypatch.setattr(streaming, "POOL_ROWS", 500)
    # Seven blocks that do not divide the rows: the last one has rows of the one before.
    monkeypatch.setattr(metrics, "DISK_BLOCK", 450)


def target_of(data):
    return qg.Target(log_prior, log_likelihood, data, dim=DIM)


def exact_mean(data):
    x, y = data["x"], data["y"]
    return np.linalg.solve(np.eye(DIM) + x.T @ x, x.T @ y)


@pytest.mark.parametrize("kind", ["mapped", "blocks"])
@pytest.mark.usefixtures("small")
def test_an_epoch_visits_every_row_once(kind, files, blocks, data):
    target = target_of(files if kind == "mapped" else qg.RowBlocks(blocks))
    feed = streaming.Feed(target, 50, [1, 2])
    assert (feed.rows, feed.steps) == (500, 10)
    seen = []
    for pool, first, last in feed.pieces(0, 60):
        assert last - first == 10
        numbers = np.asarray(pool.row_numbers)
        np.testing.assert_array_equal(pool.data["y"], data["y"][numbers])
        seen.append(numbers)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(ROWS))
    # Another epoch, another order; and the first one again is the same.
    later = [np.asarray(pool.row_numbers) for pool, *_ in feed.pieces(60, 70)]
    again = [np.asarray(pool.row_numbers) for pool, *_ in feed.pieces(5, 10)]
    assert not np.array_equal(later[0], seen[0])
    np.testing.assert_array_equal(again[0], seen[0])


@pytest.mark.usefixtures("small")
def test_pools_mix_rows_from_everywhere(files):
    pool = streaming.Feed(target_of(files), 50, [1, 2]).target
    # Rows are read 256 at a time, so that 500 come from two or three places, not from the beginning.
    assert len(set(np.asarray(pool.row_numbers) // 256)) >= 2


@pytest.mark.parametrize("kind", ["mapped", "blocks"])
@pytest.mark.usefixtures("small")
def test_metrics_are_those_of_all_rows(kind, files, blocks, data, key):
    q = qg.MeanField.init(DIM, key=key)
    on_disk = target_of(files if kind == "mapped" else qg.RowBlocks(blocks))
    for metric in (qg.elbo, qg.lppd):
        here, there = (float(metric(t, q, draws=20, key=key)) for t in (target_of(data), on_disk))
        assert there == pytest.approx(here, rel=1e-12)


@pytest.mark.turns(2)
@pytest.mark.parametrize("method", ["auto", qg.Sgd(steps=600, evaluate_every=300)])
@pytest.mark.parametrize("kind", ["mapped", "blocks"])
@pytest.mark.usefixtures("small")
def test_fits_find_the_posterior(method, kind, files, blocks, data, key):
    target = target_of(files if kind == "mapped" else qg.RowBlocks(blocks))
    result = qg.fit(target, method=method, batch_size=100, key=key)
    assert result.target is target
    assert result.status.failed is False
    std = 1 / np.sqrt(ROWS)
    # The noise of batches of 100 rows leaves the mean about a posterior sd from where it should be.
    np.testing.assert_allclose(result.q.mean(), exact_mean(data), atol=5 * std)
    exact = target_of(data)
    own = float(qg.elbo(exact, result.q, draws=2000, key=key))
    error = float(qg.elbo_with_error(exact, result.q, draws=2000, key=key)[1])
    assert result.elbo == pytest.approx(own, abs=5 * (error + result.elbo_error))
    assert result.sample(key, 3).shape == (3, DIM)


@pytest.mark.usefixtures("small")
def test_results_do_not_depend_on_how_steps_are_cut(files, key):
    ends = []
    for every in (35, 60):
        method = qg.Sgd(steps=60, evaluate_every=every)
        ends.append(qg.fit(target_of(files), method=method, batch_size=50, key=key).q.mean())
    np.testing.assert_array_equal(*ends)


def test_memory_maps_are_not_copied(files):
    target = target_of(files)
    assert isinstance(target.data, MappedRows)
    assert target.data.arrays["x"] is files["x"]
    assert (target.rows, target.size, target.on_disk) == (ROWS, ROWS, True)
    some = target.on_rows(np.array([3, 5]))
    assert not some.on_disk
    np.testing.assert_array_equal(some.data["x"], files["x"][[3, 5]])


def test_changes_to_a_private_map_survive(files, tmp_path):
    private = np.load(files["y"].filename, mmap_mode="c")
    private[0] = 7.0
    target = target_of({"x": files["x"], "y": private})
    assert float(target.on_rows(np.array([0])).data["y"][0]) == 7.0
    assert private[0] == 7.0


def test_what_needs_all_rows_says_so(files, key):
    target = target_of(files)
    with pytest.raises(ValueError, match="give batch_size="):
        qg.fit(target, key=key)
    with pytest.raises(ValueError, match="stay on disk"):
        target.log_density(jnp.zeros(DIM))
    with pytest.raises(ValueError, match="joint control variate"):
        qg.fit(target, method=qg.Sgd("joint"), batch_size=10, key=key)
    result = qg.fit(target, method=qg.Sgd(steps=5), batch_size=50, key=key)
    with pytest.raises(ValueError, match="stay on disk"):
        result.diagnose()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (iter([1]), "__len__ and __getitem__"),
        ([], "at least one block"),
    ],
)
def test_blocks_that_are_none(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        qg.RowBlocks(given)


def test_lengths_spare_the_first_reading(blocks):
    class Counted(list):
        reads = 0

        def __getitem__(self, place):
            Counted.reads += 1
            return super().__getitem__(place)

    rows = qg.RowBlocks(Counted(blocks), [700, 600, 1, 1699])
    assert (rows.rows, Counted.reads) == (ROWS, 0)
    rows.read(650, 750)
    assert Counted.reads == 2
    with pytest.raises(ValueError, match="lengths"):
        qg.RowBlocks(blocks, [1, 2])


def test_any_block_can_be_the_first_that_is_read(blocks, data):
    """With known lengths none was loaded before."""
    lengths, begin = [700, 600, 1, 1699], 0
    for length in lengths:
        found = qg.RowBlocks(blocks, lengths).read(begin, begin + length)
        for name, values in data.items():
            np.testing.assert_array_equal(found[name], values[begin : begin + length])
        begin += length


def test_a_wrong_likelihood_is_found_at_once(files):
    with pytest.raises(ValueError, match="log_likelihood"):
        qg.Target(log_prior, lambda z, rows: jnp.sum(rows["y"]), files, dim=DIM)
    assert jax.tree.leaves(target_of(files).without_rows().data) == []
