"""A user's file for a type checker: what is right passes, and what is wrong is seen."""

from typing import assert_type

import jax.random as jr

import quietgrad as qg

result = qg.fit(qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=2), key=jr.key(0))
assert_type(result, qg.FitResult)
assert_type(result.status, qg.Status)
assert_type(result.elbo, float)
_ = result.no_such_thing  # type: ignore[attr-defined]
qg.Sgd("quiet", paces=3)  # type: ignore[call-arg]
