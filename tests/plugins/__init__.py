"""pytest plugins of this test suite: the record of proved rules, and the databases."""
