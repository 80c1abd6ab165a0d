"""What goes through a checkpoint comes back as it was, and what cannot is refused."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import ElboTerms
from quietgrad.results.storage.codec import Decoder, Encoder
from quietgrad.results.storage.file import read_file, write_file
from quietgrad.session.checkpoint import CHECKPOINT, NAME, Checkpoint, Entry


def there_and_back(value, path, templates=None):
    encoder = Encoder(templates or {})
    header = {"root": encoder.encode(value), "nodes": encoder.nodes}
    write_file(path, CHECKPOINT, header, encoder.arrays)
    _, stored, body = read_file(path, CHECKPOINT)
    return Decoder(stored["nodes"], body, templates or {}).decode(stored["root"])


@pytest.mark.parametrize(
    "array",
    [
        jnp.arange(6, dtype=jnp.int32).reshape(2, 3),
        jnp.asarray([0.1, math.nan, -math.inf]),
        jnp.asarray([1.5, -2.0], jnp.bfloat16),
        jnp.zeros((0, 3)),
        np.asarray([True, False]),
        np.arange(6.0).reshape(2, 3).T,
        np.float32(0.1),
    ],
    ids=lambda a: f"{type(a).__name__}-{a.dtype}",
)
def test_arrays_come_back_with_their_kind_and_bits(array, tmp_path):
    found = there_and_back(array, tmp_path / NAME)
    assert type(found) is type(array)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert np.asarray(found).tobytes() == np.asarray(array).tobytes()


def test_keys_come_back(tmp_path):
    found = there_and_back(jr.split(jr.key(3), 2), tmp_path / NAME)
    np.testing.assert_array_equal(jr.key_data(found), jr.key_data(jr.split(jr.key(3), 2)))


def test_containers_and_numbers_come_back(tmp_path):
    value = {"a": [1, 2.5, None, True], 3: ("text", (), {}), "big": 2**127, "tiny": 5e-324}
    assert there_and_back(value, tmp_path / NAME) == value
    assert there_and_back(qg.Status.BUDGET, tmp_path / NAME) is qg.Status.BUDGET
    assert math.isnan(there_and_back(math.nan, tmp_path / NAME))


def test_objects_are_stored_once_and_stay_one(tmp_path):
    q = qg.LowRank.init(4, rank=2, key=jr.key(0))
    terms = ElboTerms(np.arange(3.0), np.zeros(4), np.ones(4), 0)
    first, second, (third, found) = there_and_back((q, q, (q, terms)), tmp_path / NAME)
    assert first is second is third
    assert eqx.tree_equal(first, q)
    assert type(found) is ElboTerms
    assert found.elbo == 1.0
    assert repr(first) == repr(q)


def held(function):
    class Held(eqx.Module):
        loc: jax.Array
        function: object

    return lambda scale: Held(jnp.full(2, scale), function)


def test_a_family_with_functions_is_stored_by_its_arrays(tmp_path):
    made = held(jnp.tanh)
    found = there_and_back({"q": made(3.0)}, tmp_path / NAME, {"family": made(0.0)})["q"]
    assert found.function is jnp.tanh
    np.testing.assert_array_equal(found.loc, 3.0)
    with pytest.raises(TypeError, match="cannot hold"):
        Encoder({}).encode(made(3.0))


def test_a_class_that_the_next_process_would_not_find_is_refused():
    with pytest.raises(TypeError, match="top of a module"):
        Encoder({}).encode(held(None)(3.0))


def test_what_cannot_be_stored_is_named():
    with pytest.raises(TypeError, match="cannot hold <object"):
        Encoder({}).encode({"state": object()})
    with pytest.raises(TypeError, match="Python objects"):
        Encoder({}).encode(np.asarray([object()]))


def test_only_known_data_classes_are_made():
    for name, message in [("os:system", "not imported"), ("builtins:dict", "no module or dataclass")]:
        with pytest.raises(ValueError, match=message):
            Decoder([{"class": name, "fields": {}}], memoryview(b""), {}).decode({"node": 0})


class Fit:
    """A recorder that only counts."""

    def __init__(self):
        self.state, self.clock = 0, 0.0

    def snapshot(self):
        return self.state

    def restore(self, snapshot):
        self.state = snapshot

    def record(self):
        return {}

    def now(self):
        return self.clock


class Loop(NamedTuple):
    turn: int


def test_a_checkpoint_gives_back_what_was_stored_and_writes_within_its_share(tmp_path):
    fit, checkpoint = Fit(), Checkpoint(tmp_path / NAME, {}, {})
    slot = checkpoint.slot("loop", fit)
    assert slot.stored is None
    slot.store(Loop(1))
    written = (tmp_path / NAME).read_bytes()
    # Writing took a second: for the next nineteen there is no other.
    checkpoint._took, fit.clock = 1.0, 19.0
    slot.store(Loop(2))
    assert (tmp_path / NAME).read_bytes() == written
    fit.clock = 20.0
    slot.store(Loop(3))
    assert (tmp_path / NAME).read_bytes() != written
    later = Checkpoint(tmp_path / NAME, {}, {}, entries=[Entry("loop", Loop(3), 7)])
    assert later.replaying
    assert later.slot("loop", fit).stored == Loop(3)
    assert fit.state == 7
    assert not later.replaying
    assert later.slot("next", fit).stored is None


def test_stages_in_another_order_are_refused(tmp_path):
    checkpoint = Checkpoint(tmp_path / NAME, {}, {}, entries=[Entry("starts", 1, 0)])
    with pytest.raises(ValueError, match="'starts' where this fit has 'anneal'"):
        checkpoint.slot("anneal", Fit())
