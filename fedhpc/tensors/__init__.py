"""Flat parameter vectors and exact sums."""
