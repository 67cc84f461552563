"""What people and scripts touch. A surface parses, calls one operation, and shows the answer; it decides nothing."""
