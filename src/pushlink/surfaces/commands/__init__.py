"""The commands, a module for each thing that people do with them; `cli.py` puts them together."""
