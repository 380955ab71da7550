"""VLCS: five classes from four photo collections (Fang et al., 2013)."""

from __future__ import annotations

from fedhpc.data._domain_folders import DomainFolders

SOURCE = DomainFolders(
    name="vlcs",
    environments={"Caltech101": 1415, "LabelMe": 2656, "SUN09": 3282, "VOC2007": 3376},
    classes=("bird", "car", "chair", "dog", "person"),
    archives=("VLCS.tar.gz",),
)
