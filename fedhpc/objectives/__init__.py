"""One file per local objective."""
