"""One file per federated rule."""
