"""Downloads pinned archives from pip's package index, and runs none of their code.

`pip download` of an sdist would run the build script of the package to get its metadata. So pip is
only used to find an archive and to connect to it.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Fetch(Protocol):
    """Downloads one archive of one package to a path."""

    def __call__(self, name: str, archive: str, sha256: str, to: Path) -> None: ...


class FetchError(Exception):
    """An archive that cannot be downloaded or does not match its hash."""


@contextmanager
def connect() -> Iterator[Fetch]:
    """One connection with pip's configuration: index, proxies, certificates, credentials."""
    try:
        # pip's internals and their types can change with every release.
        commands: Any = importlib.import_module("pip._internal.commands")
        temp_dir: Any = importlib.import_module("pip._internal.utils.temp_dir")
        target: Any = importlib.import_module("pip._internal.models.target_python")
    except ImportError as error:
        raise FetchError(f"pip is needed to download packages: {error}") from error
    command = commands.create_command("download")
    options, _ = command.parse_args(["--no-deps", "--quiet", "--disable-pip-version-check", "."])
    # One fixed target: every machine and every Python finds the same archives.
    python = target.TargetPython(
        platforms=["manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"],
        py_version_info=(3, 11),
        abis=["cp311", "abi3", "none"],
        implementation="cp",
    )
    # One of several indexes may lack a package. If all lack it, the error comes below.
    logging.getLogger("pip").setLevel(logging.ERROR)
    with command.main_context(), temp_dir.global_tempdir_manager():
        session = command.get_default_session(options)
        finder = command._build_package_finder(  # noqa: SLF001 - pip offers no public way
            options, session, target_python=python, ignore_requires_python=True
        )

        def fetch(name: str, archive: str, sha256: str, to: Path) -> None:
            links = (candidate.link for candidate in finder.find_all_candidates(name))
            link = next((link for link in links if link.filename == archive), None)
            if link is None:
                raise FetchError(f"{name}: the package index has no {archive}")
            # Without this the archive may arrive decompressed and not match its hash.
            headers = {"Accept-Encoding": "identity"}
            try:
                response = session.get(link.url_without_fragment, headers=headers)
                response.raise_for_status()
                content: bytes = response.content
            except OSError as error:
                raise FetchError(f"{name}: {archive} cannot be downloaded: {error}") from error
            if hashlib.sha256(content).hexdigest() != sha256:
                raise FetchError(f"{name}: {archive} does not have the pinned sha256")
            part = to.with_name(to.name + ".part")
            part.write_bytes(content)
            part.replace(to)

        yield fetch
