"""What every test may ask for: see plugins/databases.py for the fixtures, plugins/rules.py for the rule marks."""

from hypothesis import settings

pytest_plugins = ["plugins.rules", "plugins.databases", "pytester"]

# A busy machine is no failure of an example; what hangs is ended by pytest-timeout.
settings.register_profile("pushlink", deadline=None)
settings.load_profile("pushlink")
