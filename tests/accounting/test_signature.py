"""Signatures over a statement and weights: what they hold, and what not."""

import json
import stat

import pytest

from episodic_dp.accounting import signature

pytest.importorskip("cryptography")

STATEMENT = b'{"schema": 2}\n'


@pytest.fixture
def key(tmp_path):
  signature.new_key(tmp_path / "key")
  return tmp_path / "key"


@pytest.fixture
def weights(tmp_path):
  folder = tmp_path / "model"
  (folder / "a" / "b").mkdir(parents=True)
  (folder / "a" / "b" / "0").write_bytes(b"0123")
  (folder / "meta").write_bytes(b"meta")
  return folder


def public(key):
  return f"{key}.pub"


def signed(key, weights=None, statement=STATEMENT):
  return json.loads(json.dumps(signature.sign(statement, key, weights)))


def test_what_was_signed_is_accepted(key, weights):
  for what in (None, weights, weights / "meta"):
    found = signature.verify(STATEMENT, signed(key, what), public(key), what)
    assert found.public_key.startswith("SHA256:")
    assert found.weights == (what and signature.weights_digest(what))
    # Without the weights at hand their digest is still told.
    assert signature.verify(STATEMENT, signed(key, what), public(key)) == found


def test_a_key_is_its_owners_and_is_not_written_over(key):
  assert stat.S_IMODE(key.stat().st_mode) == 0o600
  before = key.read_bytes()
  with pytest.raises(signature.SignatureError, match="key exists"):
    signature.new_key(key)
  key.unlink()
  with pytest.raises(signature.SignatureError, match=r"key\.pub exists"):
    signature.new_key(key)
  assert before.startswith(b"-----BEGIN PRIVATE KEY-----") and not key.exists()


def _rename(weights):
  (weights / "meta").rename(weights / "meta2")


def _move(weights):
  (weights / "a" / "b" / "0").rename(weights / "a" / "0")


def _change(weights):
  (weights / "a" / "b" / "0").write_bytes(b"0124")


def _more(weights):
  (weights / ".more").write_bytes(b"")


def _less(weights):
  (weights / "meta").unlink()


@pytest.mark.parametrize("spoil", [_rename, _move, _change, _more, _less])
def test_other_weights_are_refused(key, weights, spoil):
  found = signed(key, weights)
  spoil(weights)
  with pytest.raises(signature.SignatureError, match="these are other weights"):
    signature.verify(STATEMENT, found, public(key), weights)


@pytest.mark.parametrize(
    "spoil,match",
    [
        (lambda w: (w / "x").symlink_to(w / "meta"), "x is a link or no plain"),
        (lambda w: (w / "x").symlink_to(w / "a"), "x is a link or no plain"),
    ],
)
def test_links_among_weights_are_refused(weights, spoil, match):
  spoil(weights)
  with pytest.raises(signature.SignatureError, match=match):
    signature.weights_digest(weights)


def test_weights_that_are_not_there_are_named(tmp_path):
  with pytest.raises(signature.SignatureError, match="x does not exist"):
    signature.weights_digest(tmp_path / "x")
  (tmp_path / "x").mkdir()
  with pytest.raises(signature.SignatureError, match="x holds no file"):
    signature.weights_digest(tmp_path / "x")


def test_every_change_of_a_statement_is_seen(key):
  found = signed(key)
  for i in range(len(STATEMENT)):
    other = bytearray(STATEMENT)
    other[i] ^= 1
    with pytest.raises(signature.SignatureError, match="another statement"):
      signature.verify(bytes(other), found, public(key))


def test_every_change_of_a_signature_is_seen(key, weights):
  found = signed(key, weights)
  other = signature.sign(b"other", key, weights)
  for name, value in found.items():
    for changed in ("", value[:-1], value[:-2] + "xx", None, 3, "ü", "\ud800",
                    other[name] if other[name] != value else "x"):
      if name == "public_key" and isinstance(changed, str):
        continue  # It only helps to name the key: the next test.
      with pytest.raises(signature.SignatureError) as caught:
        signature.verify(STATEMENT, found | {name: changed}, public(key))
      assert "\n" not in str(caught.value)
    short = {k: v for k, v in found.items() if k != name}
    with pytest.raises(signature.SignatureError, match="is no signature"):
      signature.verify(STATEMENT, short, public(key))
  for value in (None, [], "x", found | {"more": 1}):
    with pytest.raises(signature.SignatureError, match="is no signature"):
      signature.verify(STATEMENT, value, public(key))
  # The weights cannot be taken out of what was signed.
  with pytest.raises(signature.SignatureError, match="it was changed"):
    signature.verify(STATEMENT, found | {"weights": None}, public(key))


def test_somebody_elses_signature_is_told(key, tmp_path):
  signature.new_key(tmp_path / "other")
  found = signed(tmp_path / "other")
  with pytest.raises(signature.SignatureError, match="so somebody else signed"):
    signature.verify(STATEMENT, found, public(key))
  # Also where it claims to be of the key that is asked for.
  own = signed(key)["public_key"]
  with pytest.raises(signature.SignatureError, match="it was changed"):
    signature.verify(STATEMENT, found | {"public_key": own}, public(key))


def test_no_weights_were_signed(key, weights):
  with pytest.raises(signature.SignatureError, match="no weights were signed"):
    signature.verify(STATEMENT, signed(key), public(key), weights)


def test_keys_of_another_kind_are_named(key, tmp_path):
  from cryptography.hazmat.primitives import serialization
  from cryptography.hazmat.primitives.asymmetric import ec

  other = ec.generate_private_key(ec.SECP256R1())
  forms = serialization.PrivateFormat.PKCS8, serialization.Encoding.PEM
  plain, locked = (
      other.private_bytes(forms[1], forms[0], encryption)
      for encryption in (
          serialization.NoEncryption(),
          serialization.BestAvailableEncryption(b"password"),
      )
  )
  path = tmp_path / "other"
  for content, match in (
      (plain, "is a key of another kind: give a private Ed25519 key"),
      (locked, "is encrypted: .* without a password"),
      (b"text", "is no private key"),
      (b"", "is no private key"),
      (key.with_name("key.pub").read_bytes(), "is no private key"),
  ):
    path.write_bytes(content)
    with pytest.raises(signature.SignatureError, match=match):
      signature.sign(STATEMENT, path)
  with pytest.raises(signature.SignatureError, match="nowhere cannot be read"):
    signature.sign(STATEMENT, tmp_path / "nowhere")
  with pytest.raises(signature.SignatureError, match="key is no public key"):
    signature.verify(STATEMENT, signed(key), key)


def test_the_package_is_asked_for(key, monkeypatch):
  monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
  with pytest.raises(signature.SignatureError, match=r"episodic_dp\[sign\]"):
    signature.sign(STATEMENT, key)
