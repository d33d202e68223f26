from __future__ import annotations

from pathlib import Path

import pytest

from edge.config import DeviceSettings, gateway_url


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("PACELINE_URL", "PACELINE_API_KEY", "PACELINE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("typed", "root"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://llm.example.org/", "https://llm.example.org"),
        ("wss://llm.example.org/v1/verify", "https://llm.example.org"),
        ("https://llm.example.org/paceline/v1", "https://llm.example.org/paceline"),
        ("localhost:9000", "http://localhost:9000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_any_address_of_a_gateway_will_do(typed: str, root: str) -> None:
    assert gateway_url(typed) == root


@pytest.mark.parametrize("typed", ["", "ftp://example.org", "http://"])
def test_what_is_no_gateway_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="address of a gateway"):
        gateway_url(typed)


def test_a_gateway_on_this_machine_lends_its_first_key(tmp_path: Path) -> None:
    data = tmp_path / "paceline-data"
    data.mkdir()
    (data / "initial-key").write_text("sk-pl-first\n")
    assert DeviceSettings().key() == "sk-pl-first"
    assert DeviceSettings(url="https://llm.example.org").key() == "", "never sent to another machine"


def test_a_named_key_goes_first_and_is_not_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PACELINE_API_KEY=sk-pl-env\nPACELINE_PORT=8000\n")
    settings = DeviceSettings()
    assert settings.key() == "sk-pl-env"
    assert "sk-pl-env" not in repr(settings)
    monkeypatch.setenv("PACELINE_API_KEY", "sk-pl-environment")
    assert DeviceSettings().key() == "sk-pl-environment"


def test_every_setting_is_explained_and_the_example_can_be_used_as_it_is(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / ".env.example"
    text = example.read_text()
    assert [name for name in DeviceSettings.model_fields if f"PACELINE_{name.upper()}=" not in text] == []
    assert "PACELINE_POLICY=" in text
    (tmp_path / ".env").write_text(text)
    assert DeviceSettings().url == DeviceSettings.model_fields["url"].default
