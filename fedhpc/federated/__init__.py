"""Algorithms, placement and the round loop."""
