"""Settings that every test shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The first example of a test may compile a kernel, so none has a deadline; the draws are the same every run.
settings.register_profile(
    "bigcons", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bigcons")
