"""Secrets under a passphrase, in the format of Pulumi's own passphrase provider.

Key: PBKDF2-HMAC-SHA256, 1,000,000 iterations, 32 bytes. Cipher: AES-256-GCM, nonce of 12 bytes.
A ciphertext is ``v1:<nonce>:<ciphertext and tag>``, the state of a stack is
``v1:<salt>:<ciphertext of the word pulumi>``, all parts in base64
(Pulumi ``sdk/go/common/resource/config/crypt.go`` and ``pkg/secrets/passphrase``).
"""

import base64
import binascii
import getpass
import hashlib
import os
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from engine.usererror import UserError

ITERATIONS = 1_000_000
KEY_BYTES = 32
SALT_BYTES = 8
NONCE_BYTES = 12
VERSION = "v1"
CHECK_WORD = "pulumi"

INCORRECT = (
    "incorrect passphrase; set PULUMI_CONFIG_PASSPHRASE to the correct passphrase or"
    " PULUMI_CONFIG_PASSPHRASE_FILE to a file that contains it"
)
NOT_GIVEN = (
    "passphrase must be set with PULUMI_CONFIG_PASSPHRASE or"
    " PULUMI_CONFIG_PASSPHRASE_FILE environment variables"
)


class SecretsManager:
    """Turns secrets into text that may lie in a file, and back, under a passphrase.

    `salt` is what has to be stored so that it can be had again (``encryptionsalt`` of a stack file).
    The passphrase is asked for, and made sure of, when the first secret is met: a stack without
    secrets needs none.
    """

    def __init__(self, salt: str, passphrase: Callable[[], str]) -> None:
        version, _, rest = salt.partition(":")
        raw, _, check = rest.partition(":")
        if version != VERSION or not raw or not check:
            raise UserError(
                "the encryption salt of the stack is malformed: it has to look like"
                " v1:<salt>:v1:<nonce>:<ciphertext>"
            )
        self.salt = salt
        self._raw, self._check = _decode(raw), check
        self._passphrase = passphrase
        self._key: bytes | None = None
        self._mutex = threading.Lock()

    def encrypt(self, plaintext: str) -> str:
        """A ciphertext; two calls with the same text give different ones."""
        return _seal(self._opened(), plaintext)

    def decrypt(self, ciphertext: str) -> str:
        return _unseal(self._opened(), ciphertext)

    def verify(self) -> None:
        """Make sure of the passphrase now, not when the first secret is met."""
        self._opened()

    def state(self) -> dict[str, object]:
        """The value of ``secrets_providers`` in a deployment."""
        return {"type": "passphrase", "state": {"salt": self.salt}}

    def _opened(self) -> bytes:
        with self._mutex:
            if self._key is None:
                key = _derive(self._passphrase(), self._raw)
                try:
                    word = _unseal(key, self._check)
                except UserError as error:
                    raise UserError(INCORRECT + _origin()) from error
                if word != CHECK_WORD:
                    raise UserError(INCORRECT + _origin())
                self._key = key
            return self._key


def new_manager(passphrase: str) -> SecretsManager:
    raw = os.urandom(SALT_BYTES)
    key = _derive(passphrase, raw)
    salt = ":".join((VERSION, _encode(raw), _seal(key, CHECK_WORD)))
    manager = SecretsManager(salt, lambda: passphrase)
    manager._key = key
    return manager


@lru_cache(maxsize=8)
def _derive(passphrase: str, salt: bytes) -> bytes:
    # Costs about a third of a second, on purpose: once per process is enough.
    return hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, ITERATIONS, KEY_BYTES)


def _seal(key: bytes, plaintext: str) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, plaintext.encode(), None)
    return ":".join((VERSION, _encode(nonce), _encode(sealed)))


def _unseal(key: bytes, ciphertext: str) -> str:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    parts = ciphertext.split(":")
    if len(parts) != 3 or parts[0] != VERSION:
        raise UserError(
            "a secret is not in the passphrase format (v1:<nonce>:<ciphertext>):"
            " it was encrypted by another secrets provider or the file was edited"
        )
    nonce, sealed = _decode(parts[1]), _decode(parts[2])
    if len(nonce) != NONCE_BYTES:
        raise UserError(f"a secret has a nonce of {len(nonce)} bytes in place of {NONCE_BYTES}")
    try:
        return AESGCM(key).decrypt(nonce, sealed, None).decode()
    except (InvalidTag, UnicodeDecodeError) as error:
        raise UserError(f"a secret could not be decrypted: {INCORRECT}") from error


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError("a secret is not valid base64: the file was edited or cut off") from error


def _origin() -> str:
    """Where a passphrase that does not fit has come from."""
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return " (the one that was tried is that of PULUMI_CONFIG_PASSPHRASE)"
    if file := os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE"):
        return f" (the one that was tried is in {file})"
    return ""


def read_passphrase(prompt: str, *, interactive: bool) -> str:
    """The passphrase from the environment, from a file named there, or from the terminal."""
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return os.environ["PULUMI_CONFIG_PASSPHRASE"]
    if file := os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE"):
        try:
            return Path(file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(
                f"unable to read PULUMI_CONFIG_PASSPHRASE_FILE {file}: {error.strerror}"
            ) from error
        except UnicodeDecodeError as error:
            raise UserError(
                f"unable to read PULUMI_CONFIG_PASSPHRASE_FILE {file}: it is not text in UTF-8"
            ) from error
    if not interactive:
        raise UserError(NOT_GIVEN)
    try:
        return getpass.getpass(f"{prompt}\n    (set PULUMI_CONFIG_PASSPHRASE to remember): ")
    except EOFError as error:
        raise UserError(NOT_GIVEN) from error
