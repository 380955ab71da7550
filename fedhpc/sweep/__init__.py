"""Sweeps: whole domain-generalization trials, one at a time per rank, claimed from a shared folder."""
