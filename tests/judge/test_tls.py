import ssl
from pathlib import Path

import httpx2
import pytest

from vtune.judge.tls import trusted


def test_all_clients_share_a_context_with_the_default_certificates() -> None:
    found, own = trusted(), httpx2.create_ssl_context()
    assert trusted() is found
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (own.verify_mode, own.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert sorted(map(str, found.get_ca_certs())) == sorted(map(str, own.get_ca_certs()))


def test_certificates_named_in_the_environment_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = trusted()
    one = next(iter(usual.get_ca_certs(binary_form=True)), None)
    if one is None:
        pytest.skip("this machine's certificates are not read before they are needed")
    file = tmp_path / "own.pem"
    file.write_text(ssl.DER_cert_to_PEM_cert(one))
    with monkeypatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        assert trusted().get_ca_certs(binary_form=True) == [one]
    assert trusted() is usual
