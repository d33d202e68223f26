"""What a container is given: read as files, since no container is run here."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from app.config import ROOT, Settings

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "deploy/kubernetes.yaml").read_text()))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
USER = 10001


def _pod() -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in MANIFESTS if one["kind"] == "Deployment")["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml", "deploy/kubernetes.yaml", "deploy/nginx.conf"])
def test_every_setting_that_is_named_exists(file: str) -> None:
    named = set(re.findall(r"PACELINE_([A-Z_]+)", (ROOT / file).read_text()))
    assert named - {name.upper() for name in Settings.model_fields} == set()


def test_the_image_runs_as_nobody_in_particular_and_looks_after_its_health() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert f"--uid {USER}" in last
    assert re.search(r"^USER paceline$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    assert "build-essential" not in last, "compilers stay in the stage before"
    assert DOCKERFILE.count("\nFROM ") == 3
    assert "PYTHONDONTWRITEBYTECODE=1" in last, "its file system may be read-only"
    assert "--require-hashes" in DOCKERFILE


def test_the_images_command_needs_no_more_than_its_data_folder() -> None:
    folders = re.findall(r"^ +PACELINE_\w+_DIR=(\S+)", DOCKERFILE, re.MULTILINE)
    assert folders
    assert all(folder.startswith("/data") for folder in folders)


def test_compose_gives_the_gateway_nothing_that_it_does_not_need() -> None:
    gateway = COMPOSE["services"]["gateway"]
    assert gateway["read_only"] is True
    assert gateway["cap_drop"] == ["ALL"]
    assert gateway["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    assert gateway["depends_on"]["database"]["condition"] == "service_healthy"
    assert "ports" not in COMPOSE["services"]["database"]
    assert ":?" in gateway["environment"]["PACELINE_SECRET"], "it has no default"


def test_the_manifests_are_those_of_a_pod_that_may_do_little() -> None:
    pod = _pod()
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/data", "/tmp"}  # noqa: S108
    assert container["resources"]["limits"]["memory"]
    assert not container["image"].endswith(":latest")


def test_the_probes_ask_for_what_the_gateway_answers() -> None:
    (container,) = _pod()["containers"]
    source = (ROOT / "app/api/health.py").read_text()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f'"{container[probe]["httpGet"]["path"]}"' in source
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz", (
        "a database that is away is no reason to restart"
    )


def test_the_parts_find_each_other() -> None:
    labels = _pod_labels()
    for one in MANIFESTS:
        selector = one["spec"].get("selector", {})
        assert selector.get("matchLabels", selector) == labels, one["kind"]
    service = next(one for one in MANIFESTS if one["kind"] == "Service")
    assert service["spec"]["ports"][0]["targetPort"] == _pod()["containers"][0]["ports"][0]["name"]


def _pod_labels() -> dict[str, str]:
    deployment = next(one for one in MANIFESTS if one["kind"] == "Deployment")
    found: dict[str, str] = deployment["spec"]["template"]["metadata"]["labels"]
    return found
