"""Client settings: known names only, secrets masked."""

import pytest

from graphcache_client import InvalidInput
from graphcache_client.settings import client_settings


def test_an_unknown_setting_is_an_error_that_lists_the_known():
    with pytest.raises(InvalidInput, match=r"GRAPHCACHE_URI; known are .*GRAPHCACHE_URL"):
        client_settings({"GRAPHCACHE_URI": "http://x"})


def test_a_wrong_value_is_named(monkeypatch):
    monkeypatch.setenv("GRAPHCACHE_MODE", "fast")
    with pytest.raises(InvalidInput, match="GRAPHCACHE_MODE"):
        client_settings()


def test_the_token_shows_nowhere(monkeypatch):
    monkeypatch.setenv("GRAPHCACHE_TOKEN", "gc-very-secret")
    monkeypatch.setenv("GRAPHCACHE_URL", "http://127.0.0.1:1")
    settings = client_settings()
    service = settings.service()
    assert "very-secret" not in repr(settings) + str(settings) + repr(service)


def test_settings_of_the_service_and_the_worker_may_stand_beside():
    client_settings({"GRAPHCACHE_SERVER_PORT": "1", "GRAPHCACHE_WORKER_JOBS": "2", "PATH": "/bin"})


def test_what_kubernetes_puts_beside_a_service_called_graphcache_is_no_setting():
    client_settings({"GRAPHCACHE_SERVICE_HOST": "10.0.0.1", "GRAPHCACHE_PORT_8750_TCP_ADDR": "10.0.0.1"})
