"""Installs episodic_dp: differentially private meta-learning in JAX."""

import pathlib
import re

import setuptools

_ROOT = pathlib.Path(__file__).parent
_VERSION = re.search(
    r'^__version__ = "([^"]+)"',
    (_ROOT / "episodic_dp" / "_version.py").read_text(encoding="utf-8"),
    re.MULTILINE,
).group(1)
# Links into the repository are invalid on a package index: text and path stay,
# and pictures are removed.
_README = re.sub(
    r"\[([^]]+)\]\((?!https?://|#)([^)]+)\)",
    lambda link: link[1] if link[1] == link[2] else f"{link[1]} (`{link[2]}`)",
    re.sub(
        r"!\[[^]]*\]\((?!https?://)[^)]+\)\n*",
        "",
        (_ROOT / "README.md").read_text(encoding="utf-8"),
    ),
)

_CLOUD = ["gcsfs>=2026.2", "s3fs>=2026.2"]  # Work directories on gs://, s3://.

_DICOM = ["pydicom>=3.0"]  # A user's medical images.

# To build the site.
_DOCS = [
    "latex2mathml>=3.81",
    "mkdocs>=1.6",
    "mkdocs-material>=9.8",
    "mkdocstrings[python]>=1.0",
]

# To execute and pair the notebooks in experiments/notebooks.
_NOTEBOOKS = [
    "ipykernel>=6.29",
    "jupytext>=1.19",
    "nbclient>=0.10",
    "nbformat>=5.10",
]

_ONNX = ["onnx>=1.18", "onnxruntime>=1.22"]  # Models and backbones as a file.

# To build the package for an index, and to check the result.
_RELEASE = [
    "build>=1.3",
    "check-wheel-contents>=0.6",
    "readme_renderer[md]>=44",
    "twine>=6",
]

_TEST = [
    *_DICOM,
    *_NOTEBOOKS,
    *_ONNX,
    "coverage>=7.6",
    "dp_accounting>=0.6.0",  # Tests compare ours with it.
    "flask>=3.1",  # With moto: a server that speaks S3.
    "flask-cors>=6.0",
    "hypothesis>=6.100",
    "import-linter>=2.17",
    "moto[s3]>=5.2",
    "mpmath>=1.3",
    "mypy>=1.15",
    "pytest>=8.3",
    "pytest-xdist>=3.6",
    "ruff>=0.12",
    "s3fs>=2026.2",
    "setuptools>=77",  # A test builds a wheel.
]

setuptools.setup(
    name="episodic_dp",
    version=_VERSION,
    description="Differentially private meta-learning in JAX",
    long_description=_README,
    long_description_content_type="text/markdown",
    author="the episodic_dp authors",
    license_expression="Apache-2.0",
    keywords=[
        "accounting",
        "differential privacy",
        "few-shot learning",
        "jax",
        "machine learning",
        "meta-learning",
    ],
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Security",
        "Typing :: Typed",
    ],
    python_requires=">=3.11",
    packages=setuptools.find_packages(include=["episodic_dp", "episodic_dp.*"]),
    package_data={"": ["*.css", "starts/*.npz", "*.tsv", "*.txt", "py.typed"]},
    entry_points={
        "console_scripts": ["episodic-dp = episodic_dp.__main__:main"]
    },
    # Upper bounds only where a newer version was tried and failed.
    install_requires=[
        "absl-py>=2.3.1",
        "array_record>=0.8.1",
        "dm-haiku>=0.0.17",
        "etils[epath]>=1.13",
        "flax>=0.12.8",
        "fsspec>=2026.2",
        # tensorflow-datasets needs it to prepare a data set, undeclared.
        "importlib_resources>=6.5",
        "jax>=0.10.2",
        "jaxlib>=0.10.2",
        "matplotlib>=3.10",
        "numpy>=2.1",
        "optax>=0.2.8",
        "orbax-checkpoint>=0.12.8",
        "pillow>=11.0",
        "safetensors>=0.6",
        "scikit-learn>=1.6",
        "scipy>=1.15",
        "tensorboardX>=2.6.5",
        "tensorflow-datasets>=4.9.10",
        "tqdm>=4.67",
    ],
    extras_require={
        "bench": [
            "PLD_accounting>=2.0",
            "dp_accounting>=0.6.0",
            "jax_privacy==2.0.*",
            "torch>=2.13",
        ],
        "cloud": _CLOUD,
        "cuda": ["jax[cuda13]>=0.10.2"],
        "dev": [*_TEST, "pre-commit>=4.0", "pre-commit-hooks>=5.0"],
        "dicom": _DICOM,
        "docs": _DOCS,
        "notebooks": _NOTEBOOKS,
        "onnx": _ONNX,
        "release": _RELEASE,
        "test": _TEST,
        "torch": ["torch>=2.4"],  # for BatchSampler
        "tpu": ["jax[tpu]>=0.10.2"],
    },
)
