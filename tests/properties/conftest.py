"""How many inputs a property is tried on: few and always the same, or with `--hypothesis-profile=long` many and new."""

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # of a machine with other things to do
settings.register_profile("few", derandomize=True, deadline=None, max_examples=60, suppress_health_check=_SLOW)
settings.register_profile("long", settings.get_profile("few"), derandomize=False, database=None, max_examples=2000)
settings.load_profile("few")  # the option comes later than this where it names this folder's tests
