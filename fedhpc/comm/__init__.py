"""The world of ranks; the only package that imports mpi4py."""
