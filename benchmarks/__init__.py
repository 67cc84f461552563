"""Measurements: ratios in one run, against raw I/O and against neighbours. Never a test that fails on a clock."""
