"""Signatures: a client with trusted keys loads nothing that they did not sign."""

import pytest
from fakes.client_side import publish

from graphcache_client import BadArtifact, DiskStore, GraphCache, InvalidInput, Signer
from graphcache_client.signing import check_signature, generate_key


@pytest.fixture
def signer(tmp_path):
    generate_key(tmp_path / "key")
    return Signer.from_file(tmp_path / "key")


def test_a_graph_of_a_trusted_signer_loads(service, other, key, tmp_path, signer):
    publish(service, key, b"signed", tmp_path, signer=signer)
    with GraphCache(other, DiskStore(tmp_path / "b"), trusted_keys=[signer.public_key]) as cache:
        assert cache.get(key).path.read_bytes() == b"signed"


@pytest.mark.parametrize("trusted", [[], ["0" * 64]])
def test_a_graph_of_anybody_else_is_refused_before_it_is_stored(service, other, key, tmp_path, signer, trusted):
    publish(service, key, b"signed", tmp_path, signer=signer)
    with (
        GraphCache(other, DiskStore(tmp_path / "b"), trusted_keys=trusted) as cache,
        pytest.raises(BadArtifact, match="not trusted"),
    ):
        cache.get(key)
    assert cache.store.used_bytes() == 0


def test_an_unsigned_graph_is_refused_where_keys_are_trusted(service, other, key, tmp_path):
    publish(service, key, b"unsigned", tmp_path)
    with (
        GraphCache(other, DiskStore(tmp_path / "b"), trusted_keys=["0" * 64]) as cache,
        pytest.raises(BadArtifact, match="not signed"),
    ):
        cache.get(key)


@pytest.mark.parametrize(
    "change", [{"blob": "0" * 64}, {"size_bytes": 7}, {"toolchain": "x-1"}, {"key_digest": "0" * 64}]
)
def test_a_signature_fits_one_key_digest_size_and_toolchain(service, key, tmp_path, signer, change):
    publish(service, key, b"signed", tmp_path, signer=signer)
    artifact = service.graph(key.digest).artifact
    check_signature(artifact, [signer.public_key])
    with pytest.raises(BadArtifact, match="does not fit"):
        check_signature(artifact.model_copy(update=change), [signer.public_key])


def test_a_private_key_is_private(tmp_path, signer):
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "key").read_text().strip() not in repr(signer)
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(InvalidInput, match="chmod 600"):
        Signer.from_file(tmp_path / "key")


def test_a_key_is_never_overwritten(tmp_path, signer):
    with pytest.raises(InvalidInput, match="exists already"):
        generate_key(tmp_path / "key")
