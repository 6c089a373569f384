"""Packaging of the testbed: three packages, the scenarios as data, and the `testbed` command.

Ryu is an extra because it builds only with an old setuptools, which metadata cannot ask for; `testbed.sh` installs it
(docs/decisions/0001-set-up.md).
"""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

VERSION = "0.1.0"

REQUIREMENTS = [
    "mininet==2.3.0.dev6",
    "setuptools",  # mininet imports distutils, which Python 3.12 and later get from setuptools only
    "scapy>=2.5",
    "matplotlib>=3.6",
    "click>=8.1",
    "numpy>=1.23",
    "PyYAML>=6.0",
    "pydantic>=2.5",
    "rich>=13",
    "jinja2>=3.1",
]

TEST_REQUIREMENTS = [
    "pytest>=7.4",
    "pytest-timeout>=2.2",
    "hypothesis>=6.80",
    "ruff>=0.6",
    "mypy>=1.8",
    "types-PyYAML",
    "networkx>=3.0",
]


setup(
    name="mrc-testbed",
    version=VERSION,
    description="Emulated AI fabric on Mininet: what multipath RDMA does when links fail, against BGP",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Topic :: System :: Networking",
    ],
    python_requires=">=3.10",
    package_dir={"": "."},  # with it an editable install is one .pth line, which mypy and new packages understand
    packages=[*find_packages(str(HERE), include=["testbed*", "topologies*", "hosts*"]), "scenarios"],
    package_data={
        "": ["*.yaml", "*.c", "*.h", "*.html", "*.j2", "*.css", "*.js", "py.typed", "templates/*"],
    },
    install_requires=REQUIREMENTS,
    extras_require={"ryu": ["ryu==4.34", "eventlet>=0.38.2"], "test": TEST_REQUIREMENTS},
    entry_points={"console_scripts": ["testbed = testbed.cli:main"]},
)
