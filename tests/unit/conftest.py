"""Property tests judge by results alone: a slow machine fails none of them."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "perdure", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=40
)
settings.load_profile("perdure")
