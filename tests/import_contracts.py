"""A kind of import contract that import-linter does not bring: plug-ins do not know their siblings."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class SiblingsContract(Contract):
    """Nothing in a package of plug-ins imports one of its plug-ins.

    Every module directly in the package is a plug-in, unless its name begins with `_` or is among `helpers`.

    Configuration options:
        packages: the packages of plug-ins; one that does not exist is passed over.
        helpers: names of modules that plug-ins share.
    """

    packages = fields.ListField(subfield=fields.StringField())
    helpers = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = []
        for package in self.packages:
            if package not in graph.modules:
                continue
            children = graph.find_children(package)
            plugins = {c for c in children if self._is_plugin(c.rpartition(".")[2])}
            for importer in sorted(children):
                found += [(importer, imported) for imported in sorted(self._imports(graph, importer) & plugins)]
        return ContractCheck(kept=not found, metadata={"found": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported in check.metadata["found"]:
            output.print_error(f"{importer} imports its sibling {imported}")

    def _is_plugin(self, name: str) -> bool:
        return not name.startswith("_") and name not in (self.helpers or ())

    @staticmethod
    def _imports(graph: ImportGraph, importer: str) -> set[str]:
        return set(graph.find_modules_directly_imported_by(importer)) - {importer}
