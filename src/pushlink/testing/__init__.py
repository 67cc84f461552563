"""What users of pushlink test with. Nothing of the library itself needs it."""
