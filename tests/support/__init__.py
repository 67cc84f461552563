"""What several tests share: an independent judge of what is in the database, and a bench to run flows on."""
