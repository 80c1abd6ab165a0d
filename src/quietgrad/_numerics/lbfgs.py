"""L-BFGS on the host, one iterate at a time (Liu & Nocedal 1989; line search by Lewis & Overton 2013).

The line search asks for a sufficient decrease and a flatter slope by bisection, which survives values
that are not finite: they count as no decrease. Several searches can share their evaluations.

The memory has the compact form of Byrd, Nocedal & Schnabel (1994). With steps S and changes of the
gradient Y as rows, R the upper triangle of S Y' and D its diagonal, the inverse Hessian is gamma I plus
terms in S and Y. A product with it takes four matrix-vector products and two triangular solves, where
the usual recursion takes two passes of Python over the pairs.
"""

import math
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg.lapack import dtrtrs  # pyright: ignore[reportAttributeAccessIssue]

Vector = Float[np.ndarray, " n"]

# A part of the memory that is kept free.
SPARE = 5
DECREASE, FLATTER = 1e-4, 0.9
MOST_TRIALS = 20
RESOLUTION = 1e-8
# A decrease in nats that is not worth a step.
NOTHING = 1e-12
Function = Callable[[Vector], tuple[float, Vector]]
# A search yields points whose value and gradient it wants to be sent, and iterates that it has reached.
Search = Generator[Any, tuple[float, Vector], None]


class Pairs(NamedTuple):
    """Steps s, changes y of the gradient, and their inner products S Y' (upper triangle) and Y Y'."""

    s: Float[np.ndarray, "pairs n"]
    y: Float[np.ndarray, "pairs n"]
    sy: Float[np.ndarray, "pairs pairs"]
    yy: Float[np.ndarray, "pairs pairs"]

    @classmethod
    def none(cls, dim: int) -> "Pairs":
        """Nothing is remembered yet."""
        return cls(np.zeros((0, dim)), np.zeros((0, dim)), np.zeros((0, 0)), np.zeros((0, 0)))


class CurvatureMemory:
    """The last `most` pairs of steps and changes of the gradient."""

    def __init__(self, most: int, dim: int):
        self._most = most
        # With some room to spare, pairs move to the front once in a while, not with every new one.
        room = most + most // SPARE + 1
        self._s, self._y = np.empty((room, dim)), np.empty((room, dim))
        # S Y' and Y Y', of the pairs from `first` to `end`.
        self._sy, self._yy = np.zeros((room, room)), np.zeros((room, room))
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    def pairs(self) -> Pairs:
        """What is remembered, as arrays that later changes leave alone."""
        past = slice(self._first, self._end)
        tables = self._sy[past, past], self._yy[past, past]
        return Pairs(*(x.copy() for x in (self._s[past], self._y[past], *tables)))

    @classmethod
    def of(cls, pairs: Pairs, most: int) -> "CurvatureMemory":
        """A memory that holds these pairs."""
        count, dim = pairs.s.shape
        made = cls(most, dim)
        made._s[:count], made._y[:count], made._end = pairs.s, pairs.y, count
        made._sy[:count, :count], made._yy[:count, :count] = pairs.sy, pairs.yy
        return made

    def clear(self) -> None:
        """Forget every pair."""
        self._first = self._end = 0

    def add(self, s: Vector, y: Vector) -> None:
        """Remember a pair with positive curvature; the oldest one makes room."""
        if len(self) == self._most:
            self._first += 1
        if self._end == len(self._s):
            self._to_front()
        last, self._end = self._end, self._end + 1
        self._s[last], self._y[last] = s, y
        past = slice(self._first, self._end)
        self._sy[past, last] = self._s[past] @ y
        self._yy[past, last] = self._yy[last, past] = self._y[past] @ y

    def _to_front(self) -> None:
        past, front = slice(self._first, self._end), slice(0, len(self))
        for rows in (self._s, self._y):
            rows[front] = rows[past]
        for table in (self._sy, self._yy):
            table[front, front] = table[past, past]
        self._first, self._end = 0, len(self)

    def inverse_times(self, grad: Vector) -> Vector:
        """The product of the inverse Hessian that the pairs tell of with a vector."""
        if not len(self):
            return grad.copy()
        past = slice(self._first, self._end)
        s, y = self._s[past], self._y[past]
        # Below its diagonal the table is never written.
        yy, upper = self._yy[past, past], self._sy[past, past]
        gamma = upper[-1, -1] / yy[-1, -1]
        # u = R^-1 S g,  w = R^-T (D u + gamma Y Y' u - gamma Y g):  H g = gamma (g - Y'u) + S'w
        u, _ = dtrtrs(upper, s @ grad)
        w, _ = dtrtrs(upper, np.diagonal(upper) * u + gamma * (yy @ u - y @ grad), trans=1)
        return gamma * (grad - u @ y) + w @ s


class Iterate(NamedTuple):
    """A point, its value and its gradient."""

    x: Vector
    value: float
    grad: Vector


class LbfgsState(NamedTuple):
    """A search between two iterations. Before the first one the value at x is not known: NaN."""

    at: Iterate
    pairs: Pairs

    @classmethod
    def begin(cls, x: Vector) -> "LbfgsState":
        """A search that has evaluated nothing."""
        return cls(Iterate(x, math.nan, np.zeros_like(x)), Pairs.none(len(x)))


def iterate(
    function: Function, state: LbfgsState, iterations: int, *, memory: int = 50
) -> tuple[LbfgsState, int]:
    """The search after at most `iterations` more, and how many there were: fewer at a minimum."""
    pairs = CurvatureMemory.of(state.pairs, memory)
    search, at, done = _search(state.at, pairs), state.at, 0
    asked = next(search, None)
    while asked is not None and done < iterations:
        if isinstance(asked, Iterate):
            at, done = asked, done + 1
            asked = next(search, None) if done < iterations else None
        else:
            asked = _send(search, *function(asked))
    return LbfgsState(at, pairs.pairs()), done


def minimise(function: Function, x: Vector, *, memory: int = 50) -> Iterator[Iterate]:
    """Iterates after the start, each lower than the one before, until no lower one is found."""
    state, done = iterate(function, LbfgsState.begin(x), 1, memory=memory)
    while done:
        yield state.at
        state, done = iterate(function, state, 1, memory=memory)


def minimise_together(
    function: Callable[[Float[np.ndarray, "k n"]], tuple[Vector, Float[np.ndarray, "k n"]]],
    starts: Float[np.ndarray, "k n"],
    *,
    iterations: int,
    memory: int = 50,
) -> list[Iterate]:
    """The lowest points found from several starts, whose evaluations share the calls of `function`."""
    searches = {
        place: _search(LbfgsState.begin(x).at, CurvatureMemory(memory, len(x)))
        for place, x in enumerate(starts)
    }
    asked = {place: next(search) for place, search in searches.items()}
    lowest = [Iterate(x, np.inf, np.zeros_like(x)) for x in starts]
    counts = [0] * len(starts)
    while asked:
        values, grads = function(np.stack(list(asked.values())))
        replies = zip(list(asked.items()), values, grads, strict=True)
        for (place, x), value, grad in replies:
            found = _send(searches[place], float(value), grad)
            if not np.isfinite(lowest[place].value):
                lowest[place] = Iterate(x, float(value), grad)
            while isinstance(found, Iterate):
                lowest[place], counts[place] = found, counts[place] + 1
                found = next(searches[place], None) if counts[place] < iterations else None
            if found is None:
                del asked[place]
            else:
                asked[place] = found
    return lowest


def _send(search: Search, value: float, grad: Vector) -> Vector | Iterate | None:
    try:
        return search.send((value, grad))
    except StopIteration:
        return None


def _search(at: Iterate, pairs: CurvatureMemory) -> Search:
    """Asks for values by yielding points, and returns iterates by yielding them."""
    if math.isnan(at.value):
        value, grad = yield at.x
        at = Iterate(at.x, value, grad)
    if not _finite(at):
        return
    while True:
        # Gradients may be huge far out; what overflows is no descent direction.
        with np.errstate(over="ignore", invalid="ignore"):
            direction = -pairs.inverse_times(at.grad)
            slope = float(direction @ at.grad)
        if not slope < -NOTHING:
            if not pairs:
                return
            pairs.clear()
            continue
        step = 1.0 if pairs else min(1.0, 1.0 / max(float(np.abs(at.grad).sum()), 1e-300))
        after = yield from _line(at, direction, slope, step)
        if after is None:
            if not pairs:
                return
            # The memory may be what misleads; once more without it.
            pairs.clear()
            continue
        s, y = after.x - at.x, after.grad - at.grad
        with np.errstate(over="ignore", invalid="ignore"):
            curvature = float(s @ y)
            least = 1e-10 * float(np.linalg.norm(s) * np.linalg.norm(y))
        if least < curvature < np.inf:
            pairs.add(s, y)
        at = after
        yield at


def _line(
    at: Iterate, direction: Vector, slope: float, step: float
) -> Generator[Vector, tuple[float, Vector], Iterate | None]:
    """A lower point along the direction, flat enough if one is found in time."""
    low, high, lower = 0.0, np.inf, None
    for _ in range(MOST_TRIALS):
        x = at.x + step * direction
        value, grad = yield x
        there = Iterate(x, value, grad)
        if not _finite(there) or there.value > at.value + DECREASE * step * slope:
            high = step
        else:
            lower = there
            if float(there.grad @ direction) >= FLATTER * slope:
                return there
            low = step
        # Closer than this, values computed in single precision tell nothing.
        if high - low < 1e-3 * high or -step * slope < RESOLUTION * abs(at.value):
            break
        step = 0.5 * (low + high) if np.isfinite(high) else 2 * low
    return lower


def _finite(at: Iterate) -> bool:
    return bool(np.isfinite(at.value) and np.all(np.isfinite(at.grad)))
