"""The parts of LibriSpeech (OpenSLR resource 12) and Mini LibriSpeech (resource 31), and the archives they come in."""

from typing import NamedTuple

_OPENSLR = "https://www.openslr.org/resources"


class Part(NamedTuple):
    """How many utterances a part has, and the archive it comes in."""

    utterances: int
    url: str
    size: int
    sha256: str


PARTS = {
    "train-clean-100": Part(
        28539,
        f"{_OPENSLR}/12/train-clean-100.tar.gz",
        6387309499,
        "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
    ),
    "train-clean-360": Part(
        104014,
        f"{_OPENSLR}/12/train-clean-360.tar.gz",
        23049477885,
        "146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf",
    ),
    "train-other-500": Part(
        148688,
        f"{_OPENSLR}/12/train-other-500.tar.gz",
        30593501606,
        "ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2",
    ),
    "dev-clean": Part(
        2703,
        f"{_OPENSLR}/12/dev-clean.tar.gz",
        337926286,
        "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
    ),
    "dev-other": Part(
        2864,
        f"{_OPENSLR}/12/dev-other.tar.gz",
        314305928,
        "12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
    ),
    "test-clean": Part(
        2620,
        f"{_OPENSLR}/12/test-clean.tar.gz",
        346663984,
        "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    ),
    "test-other": Part(
        2939,
        f"{_OPENSLR}/12/test-other.tar.gz",
        328757843,
        "d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
    ),
    "train-clean-5": Part(
        1519,
        f"{_OPENSLR}/31/train-clean-5.tar.gz",
        332954390,
        "47805806c8b15f7549f3c51bd6b7da72ec0128a34d32830c8014a88658c0292d",
    ),
    "dev-clean-2": Part(
        1089,
        f"{_OPENSLR}/31/dev-clean-2.tar.gz",
        126046265,
        "176ec501490eced2d6c1f89f4f0ddc7dfe799e649e5322f8ba49fe3ff50c8012",
    ),
}
"""Sizes in bytes. OpenSLR publishes md5 sums; these sha256 are of the archives that have them."""
