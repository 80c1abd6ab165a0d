"""A traced program with less in it: the same numbers, sooner differentiated and compiled.

Probabilistic programs check each value that they score, compute constants of densities from literals,
and call small functions of NumPy's kind. Each transformation of a program visits all equations, for a
gradient several times, and so does XLA. What is not needed goes once, when a model is read.

Small inner programs are inlined and literals computed; equations that change nothing, repeat an earlier
one, or lead nowhere are dropped. Captured arrays are arguments here: their numbers are not looked at.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.lax import is_finite_p

# Equations of an inner program that is inlined: functions of NumPy's kind have a few.
SMALL = 16
# What is computed for numbers of one type, with what.
ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
}
# x + -0, x - 0, x 1 and x / 1: the number, and the places where it changes nothing. x + 0 is no -0.
NEUTRAL = {"add": (-0.0, (0, 1)), "sub": (0.0, (1,)), "mul": (1.0, (0, 1)), "div": (1.0, (1,))}
# Equations whose result is their argument if that has the shape and type of the result.
SAME = {"copy", "reshape", "reduce_sum", "convert_element_type", "broadcast_in_dim", "squeeze"}

Atom = Any  # a variable or a literal


def simplified(jaxpr: Jaxpr) -> Jaxpr:
    """A program that computes the same from the same constants and arguments."""
    made = _Simpler()
    outvars = made.add(jaxpr, [*jaxpr.constvars, *jaxpr.invars])
    return jaxpr.replace(eqns=_needed(made.equations, outvars), outvars=outvars)


class _Simpler:
    """Equations so far, where each variable comes from, and what has been computed already."""

    def __init__(self) -> None:
        self.equations: list[JaxprEqn] = []
        self.origin: dict[Atom, JaxprEqn] = {}
        self.known: dict[Any, list[Atom]] = {}

    def add(self, jaxpr: Jaxpr, given: Iterable[Atom]) -> list[Atom]:
        """The equations of a program that is called with these; what its results are."""
        now = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

        def read(atom: Atom) -> Atom:
            return atom if isinstance(atom, Literal) else now[atom]

        for equation in jaxpr.eqns:
            found = self._results(equation.replace(invars=[read(atom) for atom in equation.invars]))
            now.update(zip(equation.outvars, found, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _results(self, equation: JaxprEqn) -> list[Atom]:
        """What the equation computes, from before or by equations that are added."""
        inner = _inlinable(equation)
        if inner is not None:
            return self.add(inner, equation.invars)
        if len(equation.outvars) == 1 and not equation.effects:
            found = _literal(equation) or _unchanged(equation)
            if found is not None:
                return [found]
            equation = self._shorter(equation)
        key = None if equation.effects else _key(equation)
        if key is not None and key in self.known:
            return self.known[key]
        # The program may be inlined more than once: its variables are not used again.
        outvars: list[Atom] = [Var(var.aval) for var in equation.outvars]
        made = _with_simpler_bodies(equation).replace(outvars=outvars)
        self.equations.append(made)
        self.origin.update((var, made) for var in outvars)
        if key is not None:
            self.known[key] = outvars
        return outvars

    def _shorter(self, equation: JaxprEqn) -> JaxprEqn:
        """x = x and x != inf and x != -inf is one question."""
        if equation.primitive.name != "and":
            return equation
        first, x, limit = self._unlike(equation.invars)
        if x is None or limit is None or not np.isneginf(limit):
            return equation
        before = self.origin.get(first)
        if before is None or before.primitive.name != "and":
            return equation
        number, same, limit = self._unlike(before.invars)
        asked = self.origin.get(number)
        if same is not x or limit is None or not np.isposinf(limit) or asked is None:
            return equation
        if asked.primitive.name != "eq" or any(atom is not x for atom in asked.invars):
            return equation
        return equation.replace(primitive=is_finite_p, invars=[x], params={})

    def _unlike(self, atoms: list[Atom]) -> tuple[Atom, Atom, Any]:
        """Of (a, x != number): a, x and the number; None for what is something else."""
        first, second = atoms
        asked = None if isinstance(second, Literal) else self.origin.get(second)
        if isinstance(first, Literal) or asked is None or asked.primitive.name != "ne":
            return first, None, None
        x, limit = asked.invars
        if isinstance(x, Literal) or not isinstance(limit, Literal) or not _is_float(x):
            return first, None, None
        return first, x, limit.val


def _inlinable(equation: JaxprEqn) -> Jaxpr | None:
    """The inner program of a call that says nothing but its name, if it is small."""
    inner = equation.params.get("jaxpr")
    if equation.primitive.name not in ("jit", "pjit") or equation.effects:
        return None
    if not isinstance(inner, ClosedJaxpr) or inner.consts or len(inner.jaxpr.eqns) > SMALL:
        return None
    where = (*equation.params.get("in_shardings", ()), *equation.params.get("out_shardings", ()))
    plain = all(type(each).__name__ == "UnspecifiedValue" for each in where)
    return inner.jaxpr if plain and not equation.params.get("compiler_options_kvs") else None


def _with_simpler_bodies(equation: JaxprEqn) -> JaxprEqn:
    """A loop with a simpler body, and a larger call with a simpler inner program."""
    inner = equation.params.get("jaxpr")
    if equation.primitive.name not in ("scan", "jit", "pjit") or not isinstance(inner, ClosedJaxpr):
        return equation
    changed = inner.replace(jaxpr=simplified(inner.jaxpr))
    return equation.replace(params={**equation.params, "jaxpr": changed})


def _literal(equation: JaxprEqn) -> Literal | None:
    """The result for numbers that stand in the program."""
    name = equation.primitive.name
    out: Atom = equation.outvars[0]
    given: list[Atom] = equation.invars
    if any(not isinstance(atom, Literal) or np.ndim(atom.val) for atom in given):
        return None
    if out.aval.shape != () or out.aval.dtype not in (np.float32, np.float64):
        return None
    numbers = [np.asarray(atom.val, atom.aval.dtype)[()] for atom in given]
    if name == "convert_element_type":
        value = np.asarray(numbers[0]).astype(out.aval.dtype)
    elif name in ARITHMETIC and all(number.dtype == out.aval.dtype for number in numbers):
        with np.errstate(all="ignore"):
            value = np.asarray(ARITHMETIC[name](*numbers))
    else:
        return None
    fine = value.dtype == out.aval.dtype and bool(np.isfinite(value))
    return Literal(value[()], out.aval) if fine else None


def _unchanged(equation: JaxprEqn) -> Atom | None:
    """The argument that is the result itself."""
    (out,), name = equation.outvars, equation.primitive.name
    if name in SAME and len(equation.invars) == 1 and _alike(equation.invars[0], out):
        return equation.invars[0]
    if name not in NEUTRAL or not _is_float(out):
        return None
    number, places = NEUTRAL[name]
    for place in places:
        atom, other = equation.invars[place], equation.invars[1 - place]
        if (
            isinstance(atom, Literal)
            and np.ndim(atom.val) == 0
            and atom.val == number
            and np.signbit(atom.val) == np.signbit(number)
            and _alike(other, out)
        ):
            return other
    return None


def _alike(atom: Atom, out: Atom) -> bool:
    """Whether one may stand for the other. A truth value is one, weakly typed or not."""
    if isinstance(atom, Literal):
        return False
    both = atom.aval, out.aval
    if all(aval.dtype == np.bool_ for aval in both):
        return both[0].shape == both[1].shape
    return both[0] == both[1]


def _is_float(atom: Atom) -> bool:
    return np.issubdtype(atom.aval.dtype, np.floating)


def _key(equation: JaxprEqn) -> Any:
    """Equal for equations that compute the same; None if that cannot be told."""
    atoms = tuple(
        (atom.aval, np.asarray(atom.val).tobytes()) if isinstance(atom, Literal) else id(atom)
        for atom in equation.invars
    )
    key = equation.primitive, atoms, tuple(sorted(equation.params.items(), key=lambda item: item[0]))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _needed(equations: list[JaxprEqn], outvars: list[Atom]) -> list[JaxprEqn]:
    """Those that something depends on, or that do something besides."""
    wanted = {id(atom) for atom in outvars}
    kept = []
    for equation in reversed(equations):
        if equation.effects or any(id(var) in wanted for var in equation.outvars):
            kept.append(equation)
            wanted.update(map(id, equation.invars))
    return kept[::-1]
