"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

DEFAULT_RESULTS = Path("results")

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output, and nothing else there.")
results_option = click.option(
    "--results", type=click.Path(file_okay=False, path_type=Path), default=DEFAULT_RESULTS, show_default=True, help="Folder of all runs."
)
