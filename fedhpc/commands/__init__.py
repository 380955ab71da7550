"""One file per command of `fedhpc`: `HELP`, `add_arguments(parser)` and `run(args, overrides) -> exit code`."""
