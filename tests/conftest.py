"""Settings that every test shares."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# The first example of a test may compile a kernel, so none has a deadline; the draws are the same every run.
settings.register_profile(
    "bigcons", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bigcons")


@pytest.fixture
def as_small_process(monkeypatch):
    """Count this process, grown by all tests before, like that of a user who has just begun."""
    monkeypatch.setattr("bigcons.solving.memory_plan.resident_bytes", lambda: 250_000_000)
    monkeypatch.setattr("bigcons.solving.memory_plan._resident_at_first", lambda: 250_000_000)
