"""Names, sizes, files and checksums of Omniglot."""

from episodic_dp.data import files

NAME = "omniglot"
CHARACTERS = 1623
DRAWINGS = 20  # Of each character.
SIZE = 28
VERSION = "1.0.0"  # Of the prepared data.
FOLDER = "omniglot28"  # Of the prepared data: TFDS's name of the builder.

_URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
# First the official file, then a copy with the same PNG bytes that was zipped
# anew (entries sorted, time stamps fixed).
_ZIPS = {
    "background": files.Archive(
        "images_background.zip",
        (
            "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            "9f05fdb9868a1df1bcb98752c4039027a5ba0594395665420db9dcbdbfbaae66",
        ),
        _URL + "images_background.zip",
    ),
    "evaluation": files.Archive(
        "images_evaluation.zip",
        (
            "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            "0da4555ba8cc1a95cd28f70d9a096f18d8a3b1dfb3618e2812112405e9d6a843",
        ),
        _URL + "images_evaluation.zip",
    ),
}
ORIGINALS = files.Originals(
    name=NAME, title="Omniglot", sources={"zips": _ZIPS}, online="zips"
)
SETS = tuple(_ZIPS)  # TFDS calls them splits.
