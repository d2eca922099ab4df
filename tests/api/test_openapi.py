"""The service keeps its own OpenAPI: whatever is sent, the answer has a documented status and shape, and is no 500."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from graphcache_service.app import create_app
from graphcache_service.core.services import Services
from graphcache_service.logs import configure_logs
from graphcache_service.settings import load_settings
from graphcache_wire import routes

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def api(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("openapi")
    shutil.copyfile(sqlite_template, folder / "graphcache.db")
    configure_logs("error", "json")
    app = create_app(load_settings(environment={}, data_dir=folder))
    services: Services = app.state.services
    services.waiters.closed = True  # long polls are answered at once, as at a stop
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def ask_at_random(operation: Any) -> None:
    """Requests that fit the schema, and requests that do not."""

    @settings(max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    ask()


def test_answers_are_those_of_the_schema(api: Any) -> None:
    operations = [found.ok() for found in api.get_all_operations()]
    assert len(operations) >= 20
    for operation in operations:
        if operation.path != routes.READYZ:  # which says, rightly, that this service is stopping
            ask_at_random(operation)
