"""Where the datasets' raw files are."""

from __future__ import annotations

from collections.abc import Mapping

from fedhpc.data.fetch import Download, Recipe

_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_MNIST_SUMS = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
}
_MNIST = Recipe(
    tuple(
        Download(file, tuple(f"{mirror}{file}" for mirror in _MNIST_MIRRORS), md5) for file, md5 in _MNIST_SUMS.items()
    )
)

_CIFAR10 = "cifar-10-python.tar.gz"
_VISDA = "http://csr.bu.edu/ftp/visda/2019/multi-source/"
_DOMAIN_NET = {
    "clipart": ("groundtruth/clipart.zip", "cd0d8f2d77a4e181449b78ed62bccf1e"),
    "infograph": ("infograph.zip", "720380b86f9e6ab4805bb38b6bd135f8"),
    "painting": ("groundtruth/painting.zip", "1ae32cdb4f98fe7ab5eb0a351768abfd"),
    "quickdraw": ("quickdraw.zip", "bdc1b6f09f277da1a263389efe0c7a66"),
    "real": ("real.zip", "dcc47055e8935767784b7162e7c7cca6"),
    "sketch": ("sketch.zip", "658d8009644040ff7ce30bb2e820850f"),
}
_DUPLICATES = "domain_net_duplicates.txt"
_DOMAINBED_MISC = "https://raw.githubusercontent.com/facebookresearch/DomainBed/main/domainbed/misc/"
_CAMERA_TRAPS = "https://storage.googleapis.com/public-datasets-lila/caltechcameratraps/"


def _archive_by_hand(names: tuple[str, ...], page: str, hint: str) -> Recipe:
    return Recipe(
        by_hand=(
            f"1. open {page}",
            f"2. {hint}",
            f"3. put it there as {' or '.join(names)}, or unpack it there",
            "4. run fedhpc prepare; it names what is missing",
        ),
        files=names,
    )


RECIPES: Mapping[str, Recipe] = {
    "mnist": _MNIST,
    "colored_mnist": _MNIST,
    "rotated_mnist": _MNIST,
    "cifar10": Recipe(
        (Download(_CIFAR10, (f"https://www.cs.toronto.edu/~kriz/{_CIFAR10}",), "c58f30108f718f92721af3b95e74349a"),)
    ),
    "digits": Recipe(),
    "colored_digits": Recipe(),
    "rotated_digits": Recipe(),
    "domain_net": Recipe(
        (
            *(Download(f"{name}.zip", (f"{_VISDA}{path}",), md5) for name, (path, md5) in _DOMAIN_NET.items()),
            Download(_DUPLICATES, (f"{_DOMAINBED_MISC}{_DUPLICATES}",), "adc7b54410f8d1c5c201ae1605e553b5"),
        )
    ),
    "terra_incognita": Recipe(
        (
            Download("eccv_18_annotations.tar.gz", (f"{_CAMERA_TRAPS}eccv_18_annotations.tar.gz",), size=2_997_071),
            Download(
                "eccv_18_all_images_sm.tar.gz", (f"{_CAMERA_TRAPS}eccv_18_all_images_sm.tar.gz",), size=6_492_615_601
            ),
        )
    ),
    "pacs": _archive_by_hand(
        ("PACS.zip", "PACS", "kfold"),
        "https://dali-dl.github.io/project_iccv2017.html",
        "follow its link to the images (a shared drive that asks for a click)",
    ),
    "vlcs": _archive_by_hand(
        ("VLCS.tar.gz", "VLCS"),
        "https://github.com/facebookresearch/DomainBed",
        "its download script names the shared drive that holds the prebuilt VLCS.tar.gz",
    ),
    "office_home": _archive_by_hand(
        ("office_home.zip", "OfficeHomeDataset_10072016.zip", "office_home", "OfficeHomeDataset_10072016"),
        "https://www.hemanthdv.org/officeHomeDataset.html",
        "accept its terms and download OfficeHomeDataset_10072016.zip",
    ),
}
