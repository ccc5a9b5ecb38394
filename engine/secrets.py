"""Secrets under a passphrase, in the format of Pulumi's own passphrase provider.

Key: PBKDF2-HMAC-SHA256, 1,000,000 iterations, 32 bytes. Cipher: AES-256-GCM, nonce of 12 bytes.
A ciphertext is ``v1:<nonce>:<ciphertext and tag>``, the state of a stack is
``v1:<salt>:<ciphertext of the word pulumi>``, all parts in base64
(Pulumi ``sdk/go/common/resource/config/crypt.go`` and ``pkg/secrets/passphrase``).
"""

from __future__ import annotations

import base64
import binascii
import getpass
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol

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


class Crypter(Protocol):
    """Turns secrets into text that may lie in a file, and back."""

    def encrypt(self, plaintext: str) -> str:
        """A ciphertext; two calls with the same text give different ones."""
        ...

    def decrypt(self, ciphertext: str) -> str: ...


class PassphraseCrypter:
    """Encrypts with the key that a passphrase and a salt give; the key is derived on first use."""

    def __init__(self, passphrase: str, salt: bytes) -> None:
        self._passphrase = passphrase
        self._salt = salt

    def encrypt(self, plaintext: str) -> str:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(NONCE_BYTES)
        sealed = AESGCM(self._key).encrypt(nonce, plaintext.encode(), None)
        return ":".join((VERSION, _encode(nonce), _encode(sealed)))

    def decrypt(self, ciphertext: str) -> str:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, sealed = _split_ciphertext(ciphertext)
        try:
            return AESGCM(self._key).decrypt(nonce, sealed, None).decode()
        except (InvalidTag, UnicodeDecodeError) as error:
            raise UserError(f"a secret could not be decrypted: {INCORRECT}") from error

    @property
    def _key(self) -> bytes:
        return _derive(self._passphrase, self._salt)


@lru_cache(maxsize=8)
def _derive(passphrase: str, salt: bytes) -> bytes:
    # Costs about a third of a second, on purpose: once per process is enough.
    return hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, ITERATIONS, KEY_BYTES)


def _split_ciphertext(text: str) -> tuple[bytes, bytes]:
    parts = text.split(":")
    if len(parts) != 3 or parts[0] != VERSION:
        raise UserError(
            "a secret is not in the passphrase format (v1:<nonce>:<ciphertext>):"
            " it was encrypted by another secrets provider or the file was edited"
        )
    nonce, sealed = _decode(parts[1]), _decode(parts[2])
    if len(nonce) != NONCE_BYTES:
        raise UserError(f"a secret has a nonce of {len(nonce)} bytes in place of {NONCE_BYTES}")
    return nonce, sealed


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UserError("a secret is not valid base64: the file was edited or cut off") from error


class SecretsManager:
    """A crypter together with what has to be stored so that it can be had again."""

    type = "passphrase"

    def __init__(self, salt: str, crypter: Crypter) -> None:
        self.salt = salt
        self.crypter = crypter

    def verify(self) -> None:
        """Make sure of the passphrase now, not when the first secret is met."""
        if isinstance(self.crypter, _CheckedCrypter):
            self.crypter.verify()

    def state(self) -> dict[str, object]:
        """The value of ``secrets_providers`` in a deployment."""
        return {"type": self.type, "state": {"salt": self.salt}}


def new_manager(passphrase: str) -> SecretsManager:
    salt = os.urandom(SALT_BYTES)
    crypter = PassphraseCrypter(passphrase, salt)
    state = ":".join((VERSION, _encode(salt), crypter.encrypt(CHECK_WORD)))
    return SecretsManager(state, crypter)


def open_manager(state: str, passphrase: Callable[[], str]) -> SecretsManager:
    """The manager that wrote `state` (``encryptionsalt`` in a stack file).

    The passphrase is asked for when the first secret is met, so a stack without secrets needs
    none. If it is another one than that of the stack, the first secret raises `UserError`.
    """
    version, _, rest = state.partition(":")
    salt, _, check = rest.partition(":")
    if version != VERSION or not salt or not check:
        raise UserError(
            "the encryption salt of the stack is malformed: it has to look like"
            " v1:<salt>:v1:<nonce>:<ciphertext>"
        )
    return SecretsManager(state, _CheckedCrypter(_decode(salt), check, passphrase))


class _CheckedCrypter:
    """A crypter that makes sure of the passphrase before it does anything."""

    def __init__(self, salt: bytes, check: str, passphrase: Callable[[], str]) -> None:
        self._salt = salt
        self._check = check
        self._passphrase = passphrase
        self._crypter: PassphraseCrypter | None = None
        self._mutex = threading.Lock()

    def encrypt(self, plaintext: str) -> str:
        return self._open().encrypt(plaintext)

    def decrypt(self, ciphertext: str) -> str:
        return self._open().decrypt(ciphertext)

    def verify(self) -> None:
        self._open()

    def _open(self) -> PassphraseCrypter:
        with self._mutex:
            if self._crypter is None:
                crypter = PassphraseCrypter(self._passphrase(), self._salt)
                try:
                    word = crypter.decrypt(self._check)
                except UserError as error:
                    raise UserError(INCORRECT + _origin()) from error
                if word != CHECK_WORD:
                    raise UserError(INCORRECT + _origin())
                self._crypter = crypter
            return self._crypter


def _origin() -> str:
    """Where a passphrase that does not fit has come from."""
    if "PULUMI_CONFIG_PASSPHRASE" in os.environ:
        return " (the one that was tried is that of PULUMI_CONFIG_PASSPHRASE)"
    if file := os.environ.get("PULUMI_CONFIG_PASSPHRASE_FILE"):
        return f" (the one that was tried is in {file})"
    return ""


def read_passphrase(
    prompt: str,
    *,
    environ: Mapping[str, str] | None = None,
    interactive: bool | None = None,
) -> str:
    """The passphrase from the environment, from a file named there, or from the terminal."""
    env = os.environ if environ is None else environ
    if "PULUMI_CONFIG_PASSPHRASE" in env:
        return env["PULUMI_CONFIG_PASSPHRASE"]
    if file := env.get("PULUMI_CONFIG_PASSPHRASE_FILE"):
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
    asking = sys.stdin.isatty() if interactive is None else interactive
    if not asking:
        raise UserError(NOT_GIVEN)
    try:
        return getpass.getpass(f"{prompt}\n    (set PULUMI_CONFIG_PASSPHRASE to remember): ")
    except EOFError as error:
        raise UserError(NOT_GIVEN) from error


class StableEncrypter:
    """Gives a secret that did not change the ciphertext it had before.

    Encryption is randomised, so a state would change with every save. This remembers what was
    decrypted and encrypted so far. The first time that a text occurs within one scope (one
    resource of one save) it gets the first ciphertext known for it there, the second time the
    second: equal secrets keep different ciphertexts, so that a state does not tell which are equal.
    """

    def __init__(self, crypter: Crypter) -> None:
        self._crypter = crypter
        self._known: dict[tuple[str, str], list[str]] = {}

    def reader(self, scope: str) -> Callable[[str], str]:
        """Decrypts the ciphertexts of one scope in their order, and remembers them."""

        def decrypt(ciphertext: str) -> str:
            plaintext = self._crypter.decrypt(ciphertext)
            known = self._known.setdefault((scope, plaintext), [])
            if ciphertext not in known:
                known.append(ciphertext)
            return plaintext

        return decrypt

    def writer(self, scope: str) -> Callable[[str], str]:
        """Encrypts the secrets of one scope in their order, reusing what is remembered."""
        used: dict[str, Iterator[str]] = {}

        def encrypt(plaintext: str) -> str:
            known = self._known.setdefault((scope, plaintext), [])
            unused = used.setdefault(plaintext, iter(known.copy()))
            ciphertext = next(unused, None)
            if ciphertext is None:
                ciphertext = self._crypter.encrypt(plaintext)
                known.append(ciphertext)
            return ciphertext

        return encrypt
