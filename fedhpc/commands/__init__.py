"""One file per command of `fedhpc`; each has `HELP`, `add_arguments(parser)` and `run(args, overrides) -> exit code`."""
