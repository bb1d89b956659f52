"""Settings of the whole suite."""

from hypothesis import settings

# Derived, not random: a failure comes back on the next run. No deadline: shared machines are slow at times.
settings.register_profile("parplan", deadline=None, derandomize=True, max_examples=50)
settings.register_profile(
    "many", deadline=None, max_examples=20_000, print_blob=True
)  # for a night, not for every run
settings.load_profile("parplan")
