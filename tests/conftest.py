"""Settings of the whole suite."""

from hypothesis import settings

# Derived, not random: a failure comes back on the next run. No deadline: shared machines are slow at times.
settings.register_profile("parplan", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("parplan")
