"""One file per rule for which client owns which samples."""
