"""Scenarios: which client holds which patients, and in which task it sees them; one file per kind of timeline."""
