"""`amplint clean`: remove the cache."""

from __future__ import annotations

import os

import click

from amplint.errors import AmplintError


@click.command()
def clean() -> None:
    """Remove the results that `amplint check` keeps between runs.

    That is the folder named by AMPLINT_CACHE_DIR, or .amplint_cache in the working directory
    and beside the configuration file. Exit status: 0, also if there is none.
    """
    from amplint.cache import FOLDER, folder_for, is_cache
    from amplint.config import load_settings
    from amplint.report.text import printable

    chosen = folder_for(load_settings())
    isolated = os.path.abspath(FOLDER)  # where `check --isolated` keeps them
    folders = [chosen] if os.environ.get("AMPLINT_CACHE_DIR") else sorted({chosen, isolated})
    caches = [folder for folder in folders if is_cache(folder)]
    for folder in caches:
        _remove(folder)
        click.echo(printable(f"removed {folder}"))
    if not caches:
        click.echo(printable(f"nothing to remove: there is no cache in {' or '.join(folders)}"))


def _remove(folder: str) -> None:
    import shutil

    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise AmplintError(f"cannot remove {folder}: {error.strerror or error}") from error
