"""What every test may ask for: see plugins/databases.py for the fixtures, plugins/rules.py for the rule marks."""

pytest_plugins = ["plugins.rules", "plugins.databases", "pytester"]
