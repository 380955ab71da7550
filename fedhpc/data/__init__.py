"""Datasets on disk, partitions, batches and transforms."""
