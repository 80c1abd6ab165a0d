"""A result in a file: q, how it came about, its verdict and the names of its model, without the model.

The file has sections. One that describes the answer (q, ELBO, history, verdict, names) and cannot be
read is an error. Settings of the method and the estimator are read if this version still has them as
they were; otherwise their text is all that is left.
"""

import dataclasses
import datetime
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Float

from .._numerics.exported import Program
from .._util.environment import current_environment
from ..evaluation.points import Points
from ..families import AbstractFamily
from ..families.stored import Programs, StoredFamily, targets_in
from ..targets import Target
from ..targets.stored import About, about, stored_target, without_density
from .storage.codec import Decoder, Encoder, LikeMissing
from .storage.file import FileKind, read_file, write_file

RESULT = FileKind(
    magic=b"quietgrad result ",
    reads=(1,),
    foreign="'s result.save; give the path of a file that was",
    unknown="; install the version that wrote it, or a later one",
    damaged="; restore it from a copy, or save the result again",
)
WHAT = "the file of a result"
# Fields of a result that are stored as they are.
PLAIN = (
    *("elbo", "elbo_error", "status", "hint", "steps", "history", "clock", "evaluation", "programs"),
    *("words", "restarts", "seed"),
)
# Those that may have to be described in words.
DESCRIBED = ("method", "estimator", "estimator_state")
# Draws of q at which the log density is stored, to recognise the model by; fewer where they are long.
PROBES, NUMBERS = 4, 2**18
# Relative difference of the same model's log density on other machines and versions: sums of many rows
# differ by their order of summation, which is far below this, and other data by far more.
ALIKE = {"float32": 1e-3, "float64": 1e-8}


class Described(eqx.Module):
    """In place of a setting that the file has in words only."""

    text: str = eqx.field(static=True)

    def __repr__(self) -> str:
        return self.text


def write_result(path: str | os.PathLike[str], result: Any) -> Path:
    """Write the file, in place of one that is there."""
    place = Path(path)
    if place.is_dir():
        raise ValueError(f"{place} is a folder; name a file, for example {place / 'fit.quietgrad'}")
    encoder = Encoder({}, WHAT, "or hand the arrays over by other means")
    root = {name: encoder.encode(getattr(result, name)) for name in PLAIN}
    root["history"] = encoder.encode({name: _column(x) for name, x in result.history.items()})
    root["decisions"] = encoder.encode([str(decision) for decision in result.decisions])
    root["diagnosis"] = encoder.encode(result.diagnosis)
    root |= _family(encoder, result.q, result.target)
    root["refined"] = encoder.encode(_without_target(result.refined))
    root["hyperparameters"] = _encoded(encoder, "hyperparameters", result.hyperparameters)
    for name in DESCRIBED:
        root[name] = _described(encoder, getattr(result, name))
    model = about(result.target, result.q.dtype)
    root["model"] = encoder.encode(_sections(model))
    probes = result.remembered.probes
    root["probes"] = encoder.encode(_probes(result.target, result.q) if probes is None else probes)
    header = {"made": result.made, "root": root, "nodes": encoder.nodes}
    write_file(place, RESULT, header, encoder.arrays)
    return place


def read_result(
    path: str | os.PathLike[str], templates: Mapping[str, Any]
) -> tuple[dict[str, Any], About, dict[str, Any]]:
    """Fields of a result, what is known of its model, and what was remembered about it."""
    place = Path(path)
    _, header, body = read_file(place, RESULT)
    try:
        return _decoded(header, body, templates)
    except LikeMissing as missing:
        name, why = str(missing), header["root"].get("stored", {}).get("why")
        raise ValueError(
            f"{place} has a {name} that holds functions, of which a file has the arrays only"
            f"{'' if why is None else f' ({why})'}; make one in the same way, with any numbers in it, "
            f"and give it: load(path, {name}=...)"
        ) from missing
    except ValueError as error:
        error.add_note(f"while reading {place}")
        raise
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{place} does not have the parts of a result ({type(error).__name__}: {error}); it was "
            "changed after it was written, or written by a version with other parts"
        ) from error


def _decoded(
    header: dict[str, Any], body: memoryview, templates: Mapping[str, Any]
) -> tuple[dict[str, Any], About, dict[str, Any]]:
    known, root = dict(templates), header["root"]
    decoder = Decoder(header["nodes"], body, known, WHAT)
    fields = {name: decoder.decode(root[name]) for name in PLAIN}
    model = About(**_joined(decoder.decode(root["model"])))
    fields["q"] = _read_family(decoder, root, known, model)
    if not isinstance(fields["q"], AbstractFamily):
        raise ValueError(f"{WHAT} has a {type(fields['q']).__name__} where a family should be")
    # Files of versions without chains have none.
    fields["refined"] = decoder.decode(root.get("refined"))
    fields["decisions"] = tuple(decoder.decode(root["decisions"]))
    for name in DESCRIBED:
        fields[name] = _read(decoder, root[name], name)
    fields["hyperparameters"] = _hyperparameters(decoder, root["hyperparameters"])
    remembered = {name: decoder.decode(root[name]) for name in ("diagnosis", "probes")}
    return fields, model, {**remembered, "made": header["made"]}


def origin(seed: tuple[int, ...] | None) -> dict[str, Any]:
    """Which code, versions, machine and seed make a result, and when, as plain values."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {**current_environment(), "seed": None if seed is None else list(seed), "saved": now}


def check_same(target: Target, q: AbstractFamily, stored: Float[np.ndarray, " probes"] | None) -> None:
    """Raise a `ValueError` unless the target has the log density that was stored, at draws of q."""
    if stored is None or target.on_disk:
        return
    found = _probes(target, q)
    assert found is not None
    tolerance = ALIKE[np.dtype(q.dtype).name] * np.maximum(1.0, np.abs(stored))
    same = (np.abs(found - stored) <= tolerance) | (
        (found == stored) | (np.isnan(found) & np.isnan(stored))
    )
    if not np.all(same):
        place = int(np.argmin(same))
        raise ValueError(
            f"this is not the target that was fitted: at a draw of q its log density is "
            f"{found[place]:.6g}, and was {stored[place]:.6g}. Give the same model and data; to fit "
            "others from here, call fit(target, loaded.q, key=key)"
        )


def _probes(target: Target, q: AbstractFamily) -> Float[np.ndarray, " probes"] | None:
    """The log density at draws of q, which a reader can draw again."""
    if target.on_disk or without_density(target):
        return None
    count = max(1, min(PROBES, NUMBERS // q.dim))
    z = np.asarray(q.sample(jr.key(0), count), float)
    with np.errstate(all="ignore"):
        return Points(target, q.dtype)(z)[0]


def _without_target(refined: Any) -> dict[str, Any] | None:
    """Chains in the coordinates of a fit, without the target that they were run on."""
    if refined is None:
        return None
    names = [field.name for field in dataclasses.fields(refined) if field.name != "target"]
    return {name: getattr(refined, name) for name in names}


def _sections(model: About) -> dict[str, Any]:
    return {**vars(model), "program": _bytes(model.program)}


def _joined(sections: Mapping[str, Any]) -> dict[str, Any]:
    program = sections["program"]
    return {**sections, "program": None if program is None else program.tobytes()}


def _family(encoder: Encoder, q: AbstractFamily, target: Target) -> dict[str, Any]:
    """A family whole; or, where it holds functions, its arrays and its programs."""
    if isinstance(q, StoredFamily):
        found = q
    elif not _holds_functions(q):
        return {"q": encoder.encode(q)}
    else:
        try:
            if _holds_functions(q.base):
                raise ValueError("its base holds functions, too")
            found = StoredFamily.of(q)
        except ValueError as error:
            return {"q": encoder.encode_like("family", q), "stored": {"why": str(error)}}
        # Targets like that of the result are left out; whoever has it puts it back.
        same = all(bool(eqx.tree_equal(each, target)) for each in targets_in(q))
        found = dataclasses.replace(found, member=q if same else None)
    root = {"q": encoder.encode_leaves("family", found.arrays)}
    try:
        member = encoder.encode_around("target", Target, found.member)
    except TypeError:
        member = None
    sections = {
        "kind": found.kind,
        "sizes": [found.size, found.base_size],
        "base": found.base,
        "programs": [[_bytes(each.content), each.at_once] for each in found.programs],
    }
    stored = {name: encoder.encode(value) for name, value in sections.items()}
    return {**root, "stored": {**stored, "member": member}}


def _holds_functions(q: eqx.Module) -> bool:
    try:
        Encoder({}, WHAT).encode(q)
    except TypeError:
        return True
    return False


def _read_family(
    decoder: Decoder, root: Mapping[str, Any], templates: dict[str, Any], model: About
) -> Any:
    """What was given by `_family`, filled into a template of the reader's if there is one."""
    try:
        return decoder.decode(root["q"])
    except LikeMissing:
        if "programs" not in root.get("stored", {}):
            raise
    stored = root["stored"]
    size, base_size = decoder.decode(stored["sizes"])
    templates["target"] = stored_target(model, size)
    programs = (Program(content.tobytes(), n) for content, n in decoder.decode(stored["programs"]))
    member = decoder.decode(stored["member"])
    return StoredFamily(
        arrays=decoder.leaves(root["q"]),
        programs=Programs(*programs),
        kind=str(stored["kind"]),
        size=size,
        base_size=base_size,
        base=decoder.decode(stored["base"]) if member is None else member.base,
        member=member,
    )


def _bytes(content: bytes | None) -> np.ndarray | None:
    return None if content is None else np.frombuffer(content, np.uint8)


def _column(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return array.astype(str) if array.dtype.hasobject else array


def _encoded(encoder: Encoder, name: str, value: Any) -> Any:
    """A value whole, or by its arrays alone where it holds functions."""
    try:
        return encoder.encode(value)
    except TypeError:
        return encoder.encode_like(name, value)


def _described(encoder: Encoder, value: Any) -> Any:
    try:
        return {"value": encoder.encode(value), "text": repr(value)[:10_000]}
    except TypeError:
        return {"text": repr(value)[:10_000]}


def _read(decoder: Decoder, stored: Mapping[str, Any], name: str) -> Any:
    """The value, or what it is in words; an estimator and its state are then left out."""
    try:
        if "value" in stored:
            return decoder.decode(stored["value"])
    except (ValueError, KeyError, TypeError):
        pass
    return Described(str(stored["text"])) if name == "method" else None


def _hyperparameters(decoder: Decoder, stored: Any) -> Any:
    try:
        return decoder.decode(stored)
    except LikeMissing:
        return Described("hyperparameters with functions: load(path, hyperparameters=...) reads them")
