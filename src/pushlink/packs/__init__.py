"""Packs: remote APIs described as data. A typed model, a strict YAML loader, a linter and a JSON Schema."""
