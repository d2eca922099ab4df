"""The command line as a user types it: one line an error, a status that scripts can use."""

import json
import os
import subprocess
import sys

import pytest
from fakes.client_side import publish

from graphcache_wire import FailRequest, FailureClass, ResolveRequest

KEY = [
    "--kind",
    "moe-experts-fwd",
    "--e-hot",
    "4",
    "--h",
    "64",
    "--f",
    "32",
    "--bucket",
    "8",
    "--toolchain",
    "stub-1.0",
]
MANIFEST = """
name = "job"
toolchain = "stub-1.0"
[[graphs]]
kinds = ["moe-experts-fwd"]
e_hot = 4
h = 64
f = 32
buckets = [8]
options = {{ flags = "{flags}" }}
"""


def graphcache(*arguments: str, url: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GRAPHCACHE_")}
    clean |= {"COLUMNS": "200"} | environment | ({"GRAPHCACHE_URL": url} if url else {})
    command = [sys.executable, "-m", "graphcache_client", *arguments]
    return subprocess.run(command, env=clean, capture_output=True, text=True, check=False)


def manifest_of(key, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(MANIFEST.format(flags=key.options["flags"]))
    return str(path)


def test_get_copies_a_stored_graph_and_says_where_it_came_from(running, service, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    option = ["--option", f"flags={key.options['flags']}"]
    into = tmp_path / "copy"
    done = graphcache("get", *KEY, *option, "-o", str(into), url=running.url, GRAPHCACHE_CACHE_DIR=str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr
    assert into.read_bytes() == b"graph"
    assert done.stdout.strip().endswith("service")


def test_get_of_a_missing_graph_asks_for_it_and_ends_with_status_3(running, service, key, tmp_path):
    option = ["--option", f"flags={key.options['flags']}"]
    done = graphcache("get", *KEY, *option, url=running.url, GRAPHCACHE_CACHE_DIR=str(tmp_path / "c"))
    assert done.returncode == 3
    assert "not ready" in done.stderr
    assert service.graph(key.digest).state == "queued"


def test_prewarm_of_what_is_ready_ends_at_once(running, service, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    done = graphcache("prewarm", manifest_of(key, tmp_path), url=running.url)
    assert done.returncode == 0, done.stderr
    assert "1 of 1 ready" in done.stdout


def test_prewarm_of_what_was_refused_ends_with_status_1_and_the_reason(running, service, key, tmp_path):
    asked = ResolveRequest(key=key, owner=service.owner, holder="node", can_compile=True)
    lease = service.resolve(asked).lease
    refusal = FailRequest(generation=lease.generation, failure_class=FailureClass.REJECTED, message="no such operator")
    service.fail(lease.compile_id, refusal)
    done = graphcache("prewarm", manifest_of(key, tmp_path), url=running.url)
    assert done.returncode == 1
    assert "no such operator" in done.stdout


def test_stats_prints_tables_for_people_and_json_for_programs(running, service, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    assert "hits by tier" in graphcache("stats", url=running.url).stdout
    assert "moe-experts-fwd" in graphcache("stats", "--group-by", "kind", url=running.url).stdout
    assert json.loads(graphcache("stats", "--json", url=running.url).stdout)["blobs"] >= 1


def test_explain_names_the_ingredient_that_differs(running, service, key, tmp_path):
    publish(service, key, b"graph", tmp_path)
    other = [*KEY[:-1], "stub-9.9", "--option", f"flags={key.options['flags']}"]
    done = graphcache("explain", *other, url=running.url)
    assert done.returncode == 0, done.stderr
    assert "toolchain" in done.stdout
    assert "stub-9.9" in done.stdout


def test_keygen_prints_the_public_key_alone(tmp_path):
    done = graphcache("keygen", str(tmp_path / "key"))
    assert len(done.stdout.strip()) == 64
    assert (tmp_path / "key").read_text().strip() not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stats"], "GRAPHCACHE_URL"),
        (["stats", "--url", "http://127.0.0.1:9"], "cannot be reached"),
        (["stats", "--url", "nonsense"], "nonsense"),
        (["prewarm", "none.toml"], "none.toml: No such file"),
        (["get", *KEY[:-1], "Bad Toolchain", "--url", "http://127.0.0.1:9"], "key: toolchain"),
        (["get", *KEY, "--option", "flags", "--url", "http://127.0.0.1:9"], "name=value"),
    ],
)
def test_an_error_is_one_line_and_status_1(arguments, said):
    done = graphcache(*arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_an_unknown_setting_is_an_error():
    done = graphcache("stats", url="http://127.0.0.1:9", GRAPHCACHE_TOKN="x")
    assert done.returncode == 1
    assert "GRAPHCACHE_TOKN" in done.stderr


def test_wrong_usage_is_status_2():
    assert graphcache("stats", "--colour").returncode == 2
