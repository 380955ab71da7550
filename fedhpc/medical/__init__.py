"""Federated medical imaging: demographic clients, temporal tasks, and the baselines as recipes."""
