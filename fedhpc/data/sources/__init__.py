"""One file per dataset: its raw layout on disk becomes samples."""
