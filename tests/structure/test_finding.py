"""Structures are found where they are, with few products, and nowhere else."""

# NumPyro types what it samples as anything like an array, which has no index and no minus.
# pyright: reportIndexIssue=false, reportOperatorIssue=false

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pymc as pm
import pytest
import scipy.sparse
from numpyro.contrib.control_flow import scan

import quietgrad as qg
from quietgrad.structure import structure_of
from quietgrad.structure.finding import from_graph
from quietgrad.structure.finding.coded import decoded_graph, sampled_columns
from quietgrad.structure.finding.packing import pack
from quietgrad.structure.finding.products import HessianProducts

NOISE = np.random.default_rng(0)


def order_of(dim, *, shuffled):
    return np.random.default_rng(dim).permutation(dim) if shuffled else np.arange(dim)


def hierarchy(groups, size=1, *, shuffled=False):
    """Two globals, and groups of `size` Bernoulli logits each that are tied to each other."""
    y, dim = np.sign(NOISE.normal(size=(groups, size))), 2 + groups * size
    order = order_of(dim, shuffled=shuffled)

    def log_density(z):
        mu, log_tau, x = z[order][0], z[order][1], z[order][2:].reshape(groups, size)
        prior = -0.5 * jnp.sum((x - mu) ** 2) * jnp.exp(-2 * log_tau) - x.size * log_tau
        within = -0.3 * jnp.sum((x[:, 1:] - x[:, :-1]) ** 2)
        likelihood = -jnp.sum(jnp.logaddexp(0.0, -x * y))
        return prior + within + likelihood - 0.5 * (mu**2 + log_tau**2)

    return qg.Target(log_density, dim=dim), order


def volatility(steps, size=1, *, shuffled=False):
    """The log of a scale, and a state that follows the one before."""
    y, dim = NOISE.normal(size=(steps, size)), 1 + steps * size
    order = order_of(dim, shuffled=shuffled)
    turn = jnp.asarray(np.full((size, size), 0.3) + 0.4 * np.eye(size))

    def log_density(z):
        log_std, x = z[order][0], z[order][1:].reshape(steps, size)
        moves = x[1:] - x[:-1] @ turn
        prior = -0.5 * jnp.sum(moves**2) * jnp.exp(-2 * log_std) - moves.size * log_std
        return prior - 0.5 * jnp.sum(y**2 * jnp.exp(-x) + x) - 0.5 * (jnp.sum(x[0] ** 2) + log_std**2)

    return qg.Target(log_density, dim=dim), order


def same_blocks(found, expected):
    """Whether two tables have the same rows, whatever their order and that within a row."""
    return {frozenset(row) for row in np.asarray(found).tolist()} == {
        frozenset(row) for row in np.asarray(expected).tolist()
    }


@pytest.mark.turns(2)
@pytest.mark.parametrize("single", [False, True], ids=["double", "single"])
@pytest.mark.parametrize(
    ("groups", "size", "shuffled", "products"),
    [(8, 1, False, 40), (600, 1, True, 40), (400, 2, False, 50), (300, 3, True, 260)],
)
def test_blocks_of_a_hierarchy(groups, size, shuffled, products, single):
    """In both precisions, and from far fewer products than there are coordinates."""
    with jax.enable_x64(not single):
        target, order = hierarchy(groups, size, shuffled=shuffled)
        found = structure_of(target)
    assert found is not None
    assert found.structure.kind == "arrowhead"
    assert sorted(np.asarray(found.structure.globals)) == sorted(order[:2])
    assert same_blocks(found.structure.blocks, order[2:].reshape(groups, size))
    assert found.products <= products
    assert str(found.structure) in found.sentence
    assert "checked at 5 points" in found.sentence


@pytest.mark.parametrize(
    ("steps", "size", "shuffled", "products"),
    [(40, 1, False, 80), (1000, 1, True, 220), (300, 2, False, 100)],
)
def test_states_of_a_chain(steps, size, shuffled, products):
    target, order = volatility(steps, size, shuffled=shuffled)
    found = structure_of(target)
    assert found is not None
    assert found.structure.kind == "chain"
    assert np.asarray(found.structure.globals).tolist() == [order[0]]
    expected = order[1:].reshape(steps, size)
    blocks = np.asarray(found.structure.blocks)
    forwards = np.array_equal(np.sort(blocks), np.sort(expected))
    assert forwards or np.array_equal(np.sort(blocks[::-1]), np.sort(expected))
    assert found.products <= products


def test_every_entry_of_a_sparse_hessian_is_read_from_few_products():
    """In more columns than one digit spells, the first and the last of them among the entries."""
    rng, dim = np.random.default_rng(0), 1500
    rows, columns = np.append(rng.integers(0, dim, (2, 1000)), [[0, 3], [dim - 1, 1024]], axis=1)
    entries = scipy.sparse.coo_matrix((rng.uniform(0.5, 2, len(rows)), (rows, columns)), (dim, dim))
    matrix = scipy.sparse.csr_matrix(entries + entries.T + 5 * scipy.sparse.eye(dim))
    target = qg.Target(lambda z: -z @ z, dim=dim)
    hessian = HessianProducts(target, dim, rng, products=lambda z, v: (matrix @ v.T).T)
    assert hessian.move()
    sampled = sampled_columns(hessian)
    assert sampled is not None
    graph = decoded_graph(hessian, *sampled)
    assert graph is not None
    assert len(graph.heavy) == 0
    apart = matrix - scipy.sparse.diags(matrix.diagonal())
    assert ((apart != 0) != (graph.edges != 0)).nnz == 0
    assert hessian.count < dim / 2


def dense_regression(dim=200):
    x = NOISE.normal(size=(300, dim))
    return qg.Target(lambda z: -jnp.sum(jnp.logaddexp(0.0, x @ z)) - 0.5 * z @ z, dim=dim)


def gaussian_process(dim=150):
    t = np.linspace(0, 1, dim)
    kernel = np.exp(-50 * (t[:, None] - t[None, :]) ** 2) + 1e-3 * np.eye(dim)
    precision = jnp.asarray(np.linalg.inv(kernel))
    return qg.Target(lambda z: -0.5 * z @ precision @ z - jnp.sum(jnp.exp(z)), dim=dim)


def small_dense():
    return qg.Target(lambda z: -(jnp.sum(z) ** 2) - jnp.sum(z**4), dim=12)


@pytest.mark.parametrize("make", [dense_regression, gaussian_process, small_dense])
def test_there_is_none(make):
    assert structure_of(make()) is None


def test_few_products_find_nothing(monkeypatch):
    from quietgrad.structure.finding import find

    made = []
    products = find.HessianProducts
    monkeypatch.setattr(find, "HessianProducts", lambda *args: made.append(products(*args)) or made[0])
    assert structure_of(dense_regression()) is None
    assert made[0].count <= 20


def test_an_edge_that_shows_only_elsewhere_is_seen_by_the_check():
    """Two blocks meet in a half of space only. Each point shows it with probability 0.66, one of six
    almost surely."""

    def log_density(z):
        tie = jax.nn.relu(z[1] + 0.2) * z[2] ** 3
        return -0.5 * jnp.sum((z[1:] - z[0]) ** 2) - jnp.sum(z**4) + tie

    target = qg.Target(log_density, dim=12)
    for seed in range(5):
        found = structure_of(target, seed=seed)
        # Where no point of those that suggest a structure shows the tie, the check refuses it.
        if found is not None:
            rows = [np.asarray(found.structure.globals), *np.asarray(found.structure.blocks)]
            together = any({1, 2} <= set(row.tolist()) for row in rows)
            assert together or not {1, 2}.isdisjoint(rows[0].tolist())


@pytest.mark.slow
def test_partly_shared_effects_become_globals():
    """Regions of which each school knows one: not every global meets every local."""
    regions, schools = 12, 240
    of = np.arange(schools) % regions

    def log_density(z):
        mu, log_tau, region, school = z[0], z[1], z[2 : 2 + regions], z[2 + regions :]
        prior = -0.5 * jnp.sum((region - mu) ** 2) - 0.5 * (mu**2 + log_tau**2)
        given = -0.5 * jnp.sum((school - region[of]) ** 2) * jnp.exp(-2 * log_tau) - schools * log_tau
        return prior + given - jnp.sum(jnp.exp(school) - 2 * school)

    found = structure_of(qg.Target(log_density, dim=2 + regions + schools))
    assert found is not None
    assert np.asarray(found.structure.globals).tolist() == list(range(2 + regions))
    assert (found.structure.n, found.structure.b) == (schools, 1)


def test_persons_are_independent_given_items():
    items, persons = 15, 300
    y = NOISE.integers(0, 2, (persons, items))

    def log_density(z):
        slope, location, ability = z[:items], z[items : 2 * items], z[2 * items :]
        logit = jnp.exp(slope)[None, :] * (ability[:, None] - location[None, :])
        return jnp.sum(y * logit - jnp.logaddexp(0.0, logit)) - 0.5 * jnp.sum(z**2)

    found = structure_of(qg.Target(log_density, dim=2 * items + persons))
    assert found is not None
    assert np.asarray(found.structure.globals).tolist() == list(range(2 * items))


def test_a_density_that_is_not_finite_has_no_structure():
    assert structure_of(qg.Target(lambda z: jnp.sum(jnp.sqrt(-1.0 - z**2)), dim=20)) is None


def test_arrays_of_one_length_are_a_suggestion():
    example = {"mu": np.zeros(()), "a": np.zeros(50), "b": np.zeros((50, 2)), "w": np.zeros(3)}

    def log_density(p):
        rest = -0.5 * (p["mu"] ** 2 + jnp.sum(p["w"] ** 2)) - 0.5 * jnp.sum(p["w"]) ** 2
        tie = p["a"] * (p["b"][:, 0] + p["w"][0]) - p["b"][:, 1] * p["b"][:, 0]
        own = -jnp.sum((p["a"] - p["mu"]) ** 2) - jnp.sum(p["b"] ** 2) - jnp.sum(p["a"] ** 4)
        return rest + own + 0.3 * jnp.sum(tie)

    found = structure_of(qg.Target(log_density, example=example))
    assert found is not None
    assert (found.structure.k, found.structure.n, found.structure.b) == (4, 50, 3)
    assert "(mu, w), from its arrays of length 50" in found.sentence
    # w as further blocks would be cheaper, and is refused at the first point. Then five points; at each
    # 2 products for scales, 3 for blocks and 2 for the check.
    assert found.products == 7 + 5 * 7


@pytest.fixture
def broadcasting():
    """Other packages broadcast as NumPy does."""
    with jax.numpy_rank_promotion("allow"):
        yield


def schools(y, sigma):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(sigma)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, sigma), obs=y)


def coefficients(x, y):
    with numpyro.plate("input", x.shape[1]):
        w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def two_plates(y):
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("group", 30):
        slope = numpyro.sample("slope", dist.Normal(mu, 1).expand([2]).to_event(1))
    with numpyro.plate("month", 24):
        shift = numpyro.sample("shift", dist.StudentT(4, mu, 1))
        numpyro.sample("seen", dist.Normal(shift, 1), obs=jnp.zeros(24))
    numpyro.sample("y", dist.Normal(slope[:, 0] + slope[:, 1] ** 2, 1).to_event(1), obs=y)


def walk(y):
    std = numpyro.sample("std", dist.HalfNormal(1))

    def step(x, y):
        x = numpyro.sample("x", dist.Normal(x, std))
        numpyro.sample("y", dist.Poisson(jnp.exp(x)), obs=y)
        return x, None

    scan(step, 0.0, y)


@pytest.mark.usefixtures("broadcasting")
def test_plates_of_numpyro():
    y, sigma = NOISE.normal(size=8) * 10, np.full(8, 10.0)
    found = structure_of(qg.Target.from_numpyro(schools, y, sigma))
    assert found is not None
    assert (found.structure.k, found.structure.n, found.structure.b) == (2, 8, 1)
    assert "(mu, tau), from the axis 'school'" in found.sentence


@pytest.mark.usefixtures("broadcasting")
def test_a_plate_that_does_not_separate_is_not_believed():
    x = NOISE.normal(size=(40, 10))
    assert structure_of(qg.Target.from_numpyro(coefficients, x, (x[:, 0] > 0).astype(int))) is None


@pytest.mark.usefixtures("broadcasting")
def test_several_plates_share_out_the_coordinates():
    """30 groups of two coordinates and 24 months of one, which two by two are 12 blocks."""
    found = structure_of(qg.Target.from_numpyro(two_plates, NOISE.normal(size=30)))
    assert found is not None
    assert (found.structure.k, found.structure.n, found.structure.b) == (1, 42, 2)
    assert "(mu), from the axes 'group', 'month'" in found.sentence


@pytest.mark.usefixtures("broadcasting")
def test_a_scan_is_a_chain():
    found = structure_of(qg.Target.from_numpyro(walk, NOISE.poisson(2.0, 60)))
    assert found is not None
    assert found.structure.kind == "chain"
    assert (found.structure.k, found.structure.n, found.structure.b) == (1, 60, 1)
    assert "(std), from the zeros of the Hessian" in found.sentence


@pytest.mark.usefixtures("broadcasting")
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_dims_of_pymc():
    """A simplex has one coordinate less than its axis, and the rates are on the log scale."""
    with pm.Model(coords={"site": np.arange(20), "part": ["low", "middle", "high"]}) as model:
        mean = pm.Normal("mean", 0, 2)
        std = pm.HalfNormal("std", 1)
        rate = pm.LogNormal("rate", mean, std, dims="site")
        pm.Dirichlet("share", np.ones(3), dims="part")
        pm.Poisson("y", rate, observed=NOISE.poisson(3.0, 20), dims="site")
    target = qg.Target.from_pymc(model)
    assert target.model is not None
    dims = target.model.point_dims()
    assert dims["rate_log__"] == ["site"]
    assert dims["share_simplex__"] == [None]
    found = structure_of(target)
    assert found is not None
    assert (found.structure.k, found.structure.n) == (4, 20)
    assert "from the axis 'site'" in found.sentence


def test_small_groups_share_blocks_and_the_rest_is_global():
    groups = [np.array([0, 1, 2]), np.array([3, 4, 5]), np.array([6]), np.array([7, 8]), np.array([9])]
    made = pack(groups, np.array([10]), "a test")
    assert made is not None
    assert same_blocks(made.blocks, [[0, 1, 2], [3, 4, 5], [7, 8, 6]]) or same_blocks(
        made.blocks, [[0, 1, 2], [3, 4, 5], [7, 8, 9]]
    )
    assert set(made.globals) <= {10, 6, 9}
    assert len(made.globals) == 2


def test_the_graph_of_a_star_has_its_center_as_the_global():
    """Nine leaves: one global and blocks of one cost less than one block of all."""
    star = np.zeros((10, 10), bool)
    star[3] = star[:, 3] = True
    best = from_graph.candidates(scipy.sparse.csr_matrix(star), np.zeros(0, int))[0]
    assert best.globals.tolist() == [3]
    assert best.blocks.shape == (9, 1)
