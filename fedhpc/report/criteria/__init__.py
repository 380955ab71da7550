"""Selection criteria, one per file; the file's name is the criterion's name."""
