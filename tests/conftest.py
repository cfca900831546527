"""Every law runs under one Hypothesis profile, whichever tests are chosen: no timed assertion."""

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "laws",
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("laws")
