"""Run directories, records and checkpoints."""
