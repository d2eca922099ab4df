"""The documentation names every command, option and setting, and its links lead somewhere."""

import re
from pathlib import Path

import pytest
import typer

from graphcache_client.cli.app import build_app
from graphcache_client.settings import PREFIX as CLIENT_PREFIX
from graphcache_client.settings import ClientSettings
from graphcache_service.settings import PREFIX as SERVICE_PREFIX
from graphcache_service.settings import Settings
from graphcache_wire import routes

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = (ROOT / "docs" / "commands.md").read_text()
SETTINGS = (ROOT / "docs" / "settings.md").read_text()


def every_command():
    group = typer.main.get_command(build_app())
    for name, command in group.commands.items():
        yield from ((f"{name} {sub}", inner) for sub, inner in getattr(command, "commands", {}).items())
        if not getattr(command, "commands", None):
            yield name, command


@pytest.mark.parametrize(
    ("name", "command"), list(every_command()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_command_has_help_and_is_documented_with_all_its_options(name, command):
    assert command.help
    section = COMMANDS.split(f"## graphcache {name}\n")[1].split("\n## ")[0]
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    assert [option for option in options if option != "--help" and f"`{option}`" not in section] == []


@pytest.mark.parametrize(
    ("prefix", "settings"), [(CLIENT_PREFIX, ClientSettings), (SERVICE_PREFIX, Settings)], ids=["client", "service"]
)
def test_every_setting_is_documented(prefix, settings):
    rows = {row.split("`")[1] for row in SETTINGS.splitlines() if row.startswith("| `")}
    assert {prefix + name.upper() for name in settings.model_fields} <= rows


def test_no_setting_is_documented_that_does_not_exist():
    rows = {row.split("`")[1] for row in SETTINGS.splitlines() if row.startswith("| `")}
    known = {CLIENT_PREFIX + name.upper() for name in ClientSettings.model_fields}
    assert rows <= known | {SERVICE_PREFIX + name.upper() for name in Settings.model_fields}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_documentation_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_route_is_documented():
    api = (ROOT / "docs" / "http-api.md").read_text()
    paths = [value for name, value in vars(routes).items() if name.isupper() and str(value).startswith("/")]
    assert [path for path in paths if path not in api] == []
