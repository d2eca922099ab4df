"""Settings: the first place that names one decides, unknown names are errors, secrets stay masked."""

from pathlib import Path

import pytest

from graphcache_service.settings import SettingsError, load_settings


def test_command_line_goes_before_environment_before_file_before_default(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("port = 1\nlease_ttl_s = 10\nmax_attempts = 2\n")
    environment = {"GRAPHCACHE_SERVER_PORT": "2", "GRAPHCACHE_SERVER_LEASE_TTL_S": "20"}
    settings = load_settings(file, environment=environment, port=3)
    assert (settings.port, settings.lease_ttl_s, settings.max_attempts) == (3, 20.0, 2)
    assert settings.backoff_base_s == 5.0


def test_misspelt_name_in_a_file_is_an_error_with_a_guess(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text("quota_byte = 5\n")
    with pytest.raises(SettingsError, match=r"quota_byte.*did you mean 'quota_bytes'"):
        load_settings(file, environment={})


def test_misspelt_name_in_the_environment_is_an_error() -> None:
    with pytest.raises(SettingsError, match="GRAPHCACHE_SERVER_LEASE_TTL"):
        load_settings(environment={"GRAPHCACHE_SERVER_LEASE_TTL": "5"})


def test_names_of_clients_and_workers_may_stand_beside_ours() -> None:
    load_settings(environment={"GRAPHCACHE_URL": "http://x", "GRAPHCACHE_TOKEN": "t", "HOME": "/"})


@pytest.mark.parametrize(
    ("name", "value"),
    [("port", 70_000), ("lease_ttl_s", 0), ("max_attempts", 0), ("database_url", "mysql://x"), ("log_level", "loud")],
)
def test_impossible_value_is_an_error_that_names_the_setting(name: str, value: object) -> None:
    with pytest.raises(SettingsError, match=name.removeprefix("database_url") or "mysql"):
        load_settings(environment={}, **{name: value})


def test_secrets_are_masked_in_settings_and_in_errors() -> None:
    settings = load_settings(environment={}, database_url="postgresql://u:hush@h/d", s3_secret_access_key="hush")
    assert "hush" not in repr(settings)
    with pytest.raises(SettingsError) as caught:
        load_settings(environment={}, database_url="hush://u:hush@h/d", port="hush")
    assert "hush@" not in str(caught.value)
