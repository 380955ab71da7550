"""Federated learning and domain-generalization studies on MPI clusters.

Importing the package is cheap on purpose: neither torch nor MPI is loaded until a command needs them.
"""

__version__ = "0.1.0"
