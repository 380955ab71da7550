"""Local training and evaluation of one model."""
