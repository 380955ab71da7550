"""`fedhpc run` whose local objective raises for one client in one round: failing_client.py CLIENT ROUND ARGS..."""

from __future__ import annotations

import sys
from typing import Any

from fedhpc import cli
from fedhpc.train.local import LocalTrainer


def main() -> None:
    client, round = int(sys.argv[1]), int(sys.argv[2])
    begin = LocalTrainer.begin

    def begin_or_fail(self: LocalTrainer, c: int, r: int, *args: Any, **options: Any) -> Any:
        if (c, r + 1) == (client, round):
            raise RuntimeError("the injected failure")
        return begin(self, c, r, *args, **options)

    LocalTrainer.begin = begin_or_fail  # type: ignore[method-assign]
    cli.main(sys.argv[3:])


if __name__ == "__main__":
    main()
