"""Baselines as recipes: which batches, objective, memory, averaging and stages; one file per recipe.

A recipe names parts and holds their numbers, it runs nothing, so that it goes with every federated algorithm.
"""
