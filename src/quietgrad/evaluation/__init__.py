"""Numbers about a q: the target at many points, ELBO terms and differences, lppd, gradient noise."""
