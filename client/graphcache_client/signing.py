"""Ed25519 signatures: whoever compiles signs; a client with trusted keys loads nothing else."""

import os
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from graphcache_client.errors import BadArtifact, InvalidInput
from graphcache_wire import Artifact, Signature, signed_statement


class Signer:
    """Signs what this machine compiled. The private key shows in no repr."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key

    @classmethod
    def from_file(cls, path: Path) -> "Signer":
        """Read a private key made by ``graphcache keygen``: 64 hexadecimal digits, readable by its owner alone.

        Raises:
            InvalidInput: the file cannot be read, holds no key, or is readable by others.
        """
        try:
            text = path.read_text().strip()
            mode = path.stat().st_mode
        except OSError as error:
            raise InvalidInput(f"signing key {path}: {error.strerror}") from error
        if mode & 0o077:
            raise InvalidInput(f"signing key {path} can be read by others: run chmod 600 {path}")
        try:
            return cls(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text)))
        except ValueError:
            raise InvalidInput(f"signing key {path} holds no Ed25519 key of 64 hexadecimal digits") from None

    @property
    def public_key(self) -> str:
        return self._private_key.public_key().public_bytes_raw().hex()

    def sign(self, key_digest: str, blob: str, size_bytes: int, toolchain: str) -> Signature:
        statement = signed_statement(key_digest, blob, size_bytes, toolchain)
        value = self._private_key.sign(statement).hex()
        return Signature(algorithm="ed25519", public_key=self.public_key, value=value)

    def __repr__(self) -> str:
        return f"Signer(public_key={self.public_key!r})"


def generate_key(path: Path) -> str:
    """Make a new private key file of mode 0600 and return its public key in hexadecimal.

    Raises:
        InvalidInput: the file exists already, or cannot be written.
    """
    private_key = Ed25519PrivateKey.generate()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidInput(f"{path} exists already: a key is never overwritten") from None
    except OSError as error:
        raise InvalidInput(f"{path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as file:
        file.write(private_key.private_bytes_raw().hex() + "\n")
    return Signer(private_key).public_key


def check_signature(artifact: Artifact, trusted_keys: Iterable[str]) -> None:
    """Check that a trusted key signed this artifact for its key.

    Raises:
        BadArtifact: unsigned, signed by somebody else, or the signature does not fit.
    """
    signature = artifact.signature
    if signature is None:
        raise BadArtifact("bad_signature", f"blob {artifact.blob} is not signed, and only trusted signatures load here")
    if signature.public_key not in set(trusted_keys):
        raise BadArtifact(
            "bad_signature", f"blob {artifact.blob} is signed by {signature.public_key}, which is not trusted"
        )
    statement = signed_statement(artifact.key_digest, artifact.blob, artifact.size_bytes, artifact.toolchain)
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key)).verify(
            bytes.fromhex(signature.value), statement
        )
    except (InvalidSignature, ValueError) as error:
        raise BadArtifact(
            "bad_signature", f"blob {artifact.blob}: the signature does not fit its key and bytes"
        ) from error
