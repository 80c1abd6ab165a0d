"""Programs kept between processes: found again, never in the way, and the user's setting comes first."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import pytest

import quietgrad as qg
from quietgrad.scale import compilation_cache

FIT = """
import collections, json, sys
import jax

seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event]))
import jax.numpy as jnp
import quietgrad as qg

target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
result = qg.fit(target, method=qg.Sgd(steps=20), key=jax.random.key(0))
asked = seen["/jax/compilation_cache/compile_requests_use_cache"]
found = seen["/jax/compilation_cache/cache_hits"]
folder = jax.config.jax_compilation_cache_dir
report = dict(programs=result.programs, asked=asked, found=found, elbo=result.elbo, folder=folder)
print(json.dumps(report))
"""


def fit_in_a_process(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "QUIETGRAD_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIT],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_second_process_compiles_nothing_from_scratch(tmp_path):
    first = fit_in_a_process(XDG_CACHE_HOME=str(tmp_path))
    assert Path(first["folder"]).is_relative_to(tmp_path / "quietgrad" / "compiled")
    assert first["found"] == 0
    second = fit_in_a_process(XDG_CACHE_HOME=str(tmp_path))
    # What was compiled before the fit, the key above all, was not kept: the switch is part of the fit.
    assert second["found"] == second["programs"] == first["programs"] > 0
    assert second["elbo"] == first["elbo"]


def test_off_by_one_setting(tmp_path):
    off = fit_in_a_process(XDG_CACHE_HOME=str(tmp_path), QUIETGRAD_COMPILED="off")
    assert off["folder"] is None
    assert not list(tmp_path.rglob("*-cache"))


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert fit_in_a_process(QUIETGRAD_COMPILED=str(blocked / "inside"))["folder"] is None


@pytest.fixture
def settings():
    """jax's settings and ours as they were before the test."""
    names = ["jax_compilation_cache_dir", *compilation_cache.SMALL]
    before = {name: getattr(jax.config, name) for name in names}
    ours = compilation_cache._ours, compilation_cache._decided
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache._ours, compilation_cache._decided = ours
    compilation_cache._forget()


@pytest.mark.usefixtures("settings")
def test_what_the_user_set_in_jax_stays(tmp_path, monkeypatch):
    monkeypatch.setenv(compilation_cache.VARIABLE, str(tmp_path / "ours"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    assert qg.keep_compiled() == tmp_path / "theirs"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
    assert qg.keep_compiled(None) is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
    assert qg.keep_compiled(tmp_path / "asked for") == tmp_path / "asked for"


@pytest.mark.usefixtures("settings")
def test_a_switch_before_the_fit_is_kept(tmp_path, monkeypatch):
    monkeypatch.delenv(compilation_cache.VARIABLE)
    assert qg.keep_compiled(tmp_path) == tmp_path
    compilation_cache.keep_compiled_once()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    assert qg.keep_compiled(None) is None
    compilation_cache.keep_compiled_once()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.usefixtures("settings")
def test_a_broken_entry_is_compiled_again(tmp_path):
    qg.keep_compiled(tmp_path)
    made = [jax.jit(lambda x: x * 3 + 1)(2.0)]
    entries = list(tmp_path.glob("*-cache"))
    assert entries
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:10])
    jax.clear_caches()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache")
        made.append(jax.jit(lambda x: x * 3 + 1)(2.0))
    assert made == [7.0, 7.0]


@pytest.mark.usefixtures("settings")
def test_old_programs_go_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(compilation_cache.VARIABLE)
    folder = qg.keep_compiled()
    assert folder is not None
    old, new, other = (folder / name for name in ("old-cache", "new-cache", "notes.txt"))
    for path in (old, new, other):
        path.write_text("x")
    for path in (old, other):
        os.utime(path, (0, 0))
    qg.keep_compiled()
    assert (old.exists(), new.exists(), other.exists()) == (False, True, True)
