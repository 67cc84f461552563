"""Adapters: what stands behind the ports, and the only rooms that know a library of the outside."""
