"""A banana that no Gaussian can follow, by a semi-implicit family: a network of a random input."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import quietgrad as qg


# %% z1 ~ N(0, 4) and z2 given z1 ~ N(z1^2 / 2, 1/4), normalised: the best possible ELBO is zero.
def log_density(z):
    ridge = z[1] - 0.5 * z[0] ** 2
    return -0.125 * z[0] ** 2 - 2.0 * ridge**2 - jnp.log(2 * jnp.pi)


target = qg.Target(log_density, dim=2)

# %% z = mu(eps) + sigma(eps) * u with a network for mu and sigma. It starts as the Gaussian below it.
gaussian = qg.fit(target, "full-rank", key=jax.random.key(0))
start = qg.SemiImplicit.init(2, key=jax.random.key(1), mixing=3)
start = start.start_from(gaussian.q, key=jax.random.key(2))

# %% Its score is an expectation over eps given z: from Hamiltonian chains, weighted by Stein's identity.
estimator = qg.estimator("uivi-stein", draws=32)
optimizer = optax.adam(optax.cosine_decay_schedule(0.01, 2000))
method = qg.Sgd(estimator=estimator, optimizer=optimizer, steps=2000)
result = qg.fit(target, start, method=method, key=jax.random.key(3))

# %% log q is estimated from above, so that the ELBO is a lower bound; the two bounds say how well.
e = jax.random.normal(jax.random.key(4), (1000, result.q.base_dim))
lower, upper = jax.vmap(result.q.bounds)(e)
for name, fitted in {"full-rank": gaussian, "semi-implicit": result}.items():
    draws = np.asarray(fitted.sample(jax.random.key(5), 4000))
    print(f"{name:14} ELBO {fitted.elbo:+.3f}   sd of z2 {np.std(draws[:, 1]):.2f} (2.87 in truth)")
print(f"of which the bounds of log q hide at most {float(jnp.mean(upper - lower)):.3f} nats")
