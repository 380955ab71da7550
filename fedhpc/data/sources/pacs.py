"""PACS: seven classes as art paintings, cartoons, photos and sketches (Li et al., 2017)."""

from __future__ import annotations

from fedhpc.data._domain_folders import DomainFolders

SOURCE = DomainFolders(
    name="pacs",
    environments={"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    archives=("PACS.zip",),
)
