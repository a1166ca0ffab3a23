"""The software bill of materials of the workbook: CycloneDX 1.6 JSON from requirements.lock.

The serial number is made from the lock; with ``SOURCE_DATE_EPOCH`` set, the same lock and
environment give the same bytes. Hashes are those of the lock: one for each file of a release.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import Distribution
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from licences import Licence, installed, licences, read_rules
from locked import ROOT, WORKBOOK, read_lock
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TARGET = ROOT / "dist" / "sbom.cdx.json"
NAMESPACE = uuid.UUID("6f0b9c1e-6e4e-5d0c-9a39-3f8f8d0f2d4b")


def component(licence: Licence) -> Component:
    """Return one locked package as a component."""
    package = licence.package
    marker = [Property(name="enginebook:marker", value=package.marker)] if package.marker else []
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=package.pin,
        purl=PackageURL("pypi", None, package.name, package.version),
        licenses=[LicenseExpression(licence.spdx)] if licence.spdx else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=h) for h in package.hashes],
        properties=marker,
    )


def workbook(root: Path = ROOT) -> tuple[Component, list[str]]:
    """Return the project itself, and the names that it asks for."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    itself = Component(
        name=project["name"],
        version=project["version"],
        type=ComponentType.APPLICATION,
        bom_ref=project["name"],
        licenses=[LicenseExpression(project["license"])],
    )
    return itself, [canonicalize_name(Requirement(line).name) for line in lines]


def needs(package: Distribution) -> list[str]:
    """Return the names of what an installed package asks for on this host (no extras)."""
    wanted = [Requirement(line) for line in package.requires or ()]
    return [
        canonicalize_name(r.name)
        for r in wanted
        if r.marker is None or r.marker.evaluate({"extra": ""})
    ]


def bill(found: Sequence[Licence], here: Mapping[str, Distribution], lock_sha256: str) -> Bom:
    """Return the bill of a lock: components, licences, hashes and who needs whom."""
    itself, direct = workbook()
    parts: dict[str, list[Component]] = {}
    for licence in found:
        parts.setdefault(licence.package.name, []).append(component(licence))
    bom = Bom(components=[c for cs in parts.values() for c in cs])
    bom.serial_number = uuid.uuid5(NAMESPACE, lock_sha256)
    bom.metadata = BomMetaData(component=itself, timestamp=_now())
    bom.register_dependency(itself, _parts(parts, direct))
    for name, versions in parts.items():
        package = here.get(name)
        for one in versions:
            bom.register_dependency(one, _parts(parts, needs(package) if package else ()))
    return bom


def _parts(parts: Mapping[str, list[Component]], names: Iterable[str]) -> list[Component]:
    return [c for name in dict.fromkeys(names) for c in parts.get(name, ())]


def _now() -> datetime:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return datetime.fromtimestamp(int(given), tz=UTC) if given else datetime.now(tz=UTC)


def as_json(bom: Bom) -> str:
    """Return a bill as CycloneDX JSON that the schema accepts.

    Raises
    ------
    ValueError
        When the schema does not accept it.
    """
    text = JsonV1Dot6(bom).output_as_string(indent=1)
    trouble = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if trouble is not None:
        raise ValueError(f"not CycloneDX 1.6: {trouble}")
    return text + "\n"


def make(lock: Path = WORKBOOK) -> str:
    """Return the bill of a lock as JSON text."""
    sha256 = hashlib.sha256(lock.read_bytes()).hexdigest()
    return as_json(bill(licences(read_lock(lock), read_rules()), installed(), sha256))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the bill."""
    parser = argparse.ArgumentParser(description="the workbook's bill of materials")
    parser.add_argument("--output", type=Path, default=TARGET)
    args = parser.parse_args(argv)
    text = make()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text, encoding="utf-8")
    print(f"{args.output}: {len(text) // 1024} KiB, CycloneDX 1.6")
    return 0


if __name__ == "__main__":
    sys.exit(main())
