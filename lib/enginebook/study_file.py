"""Read a study file: safe YAML, scenario references resolved, errors that name file and key."""

from __future__ import annotations

import difflib
import reprlib
import textwrap
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from enginebook.errors import InputError
from enginebook.fields import Frozen
from enginebook.masking import holds_password, is_secret_option
from enginebook.models import ModelSpec
from enginebook.paths import params_dir
from enginebook.scenarios import KINDS, ClosedLoop
from enginebook.study import EngineSpec, Study, slug

Location = tuple[str | int, ...]
LONGEST_NAME = 63
MOST_VALUES, MOST_DEPTH = 200_000, 100
MERGE = "tag:yaml.org,2002:merge"
_TAGS = frozenset(KINDS)
"""Parts that a scenario's kind adds to the place of a problem; the file has no such key."""


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice, which plain YAML silently lets the last one win."""


def _mapping_without_twins(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == MERGE:
            continue
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(
                None, None, "a key is a list or a mapping", key_node.start_mark
            )
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is given twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


def _text(loader: _StrictLoader, node: yaml.ScalarNode) -> str:
    """Return a text; JSON writes a character beyond U+FFFF as two halves, which YAML leaves so."""
    text = str(loader.construct_scalar(node))
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise yaml.constructor.ConstructorError(
            None, None, "a text holds half a character", node.start_mark
        ) from None


def _refused(_loader: _StrictLoader, node: yaml.Node) -> Any:
    """Refuse tuples and sets: they are no plain data, and their values would not be counted."""
    raise yaml.constructor.ConstructorError(
        None, None, f"the tag {node.tag} is not used here", node.start_mark
    )


_StrictLoader.add_constructor(
    yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_twins
)
_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG, _text)
for _name in ("omap", "pairs", "set"):
    _StrictLoader.add_constructor(f"tag:yaml.org,2002:{_name}", _refused)


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML text: plain data, of a size and depth that can be worked with.

    Tags of Python objects are refused. A few lines of anchors can stand for more values than any
    memory holds, so values are counted as often as they are repeated.

    Raises
    ------
    yaml.YAMLError
        When it is not such YAML.
    """
    try:
        value = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader subclass)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except (ValueError, OverflowError) as error:  # a date of month 13
        raise yaml.YAMLError(str(error)) from None
    _count_values(value)
    return value


def _count_values(value: Any) -> None:
    waiting, seen = [(value, 0)], 0
    while waiting:
        part, depth = waiting.pop()
        seen += 1
        if depth > MOST_DEPTH:
            raise yaml.YAMLError("it is nested too deep, or holds itself")
        if seen > MOST_VALUES:
            raise yaml.YAMLError(f"it stands for more than {MOST_VALUES:,} values")
        if isinstance(part, dict):
            waiting += [(v, depth + 1) for v in part.values()]
        elif isinstance(part, list):
            waiting += [(v, depth + 1) for v in part]


def read_yaml(path: Path) -> dict[str, Any]:
    """Return a YAML file's top-level mapping.

    Raises
    ------
    InputError
        When the file is missing, is not YAML, or holds something else than a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file", _files_like(path)) from None
    except (OSError, ValueError) as error:  # a null character in the path is a ValueError
        raise InputError(f"{path}: cannot be read ({error})") from None
    try:
        value = parse_yaml(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: {_yaml_problem(error)}", "mend the YAML") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds no mapping of keys to values")
    return value


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return f"not YAML ({error})"


def _files_like(path: Path) -> str:
    folder = path.parent
    names = sorted(p.name for p in folder.glob("*.yaml")) if folder.is_dir() else []
    return f"files there: {', '.join(names)}" if names else "check the path"


def closest(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` or the list of what is known."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"


def resolve_scenarios(entries: object, folder: Path | None = None) -> object:
    """Replace ``use: NAME`` (or a bare name) by params/scenarios/NAME.yaml, own keys on top."""
    if not isinstance(entries, list):
        return entries  # pydantic names the wrong type
    return [_resolve_scenario(entry, folder or params_dir() / "scenarios") for entry in entries]


def _resolve_scenario(entry: object, folder: Path) -> object:
    given: Mapping[str, Any]
    if isinstance(entry, str):
        given = {"use": entry}
    elif isinstance(entry, dict):
        given = entry
    else:
        return entry
    if "use" not in given:
        return dict(given)
    name = str(given["use"])
    path = folder / f"{name}.yaml"
    if slug(name) != name or len(name) > LONGEST_NAME or not path.is_file():
        known = (p.stem for p in folder.glob("*.yaml"))
        shown = textwrap.shorten(repr(name), 80, placeholder="...")
        raise InputError(f"key scenarios: no scenario {shown} in {folder}", closest(name, known))
    own = {key: value for key, value in given.items() if key != "use"}
    return {"name": name, **read_yaml(path), **own}


def study_from_parameters(parameters: Mapping[str, Any], origin: str = "parameters") -> Study:
    """Validate flat parameters (a study file's keys, or a notebook's variables).

    Raises
    ------
    InputError
        One line a problem: origin, key, what was given, what is wanted.
    """
    _refuse_secrets(parameters, origin)
    resolved = dict(parameters)
    if "scenarios" in resolved:
        try:
            resolved["scenarios"] = resolve_scenarios(resolved["scenarios"])
        except InputError as error:
            raise InputError(f"{origin}: {error.message}", error.remedy) from None
    try:
        return Study.model_validate(resolved)
    except ValidationError as error:
        raise InputError(*_describe(error, origin)) from None


def _refuse_secrets(value: Any, origin: str, key: str = "") -> None:
    """Refuse a secret among parameters: they are copied to notebooks, manifests and reports."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            place = f"{key}.{name}" if key else str(name)
            if is_secret_option(str(name)) and isinstance(inner, str) and inner:
                raise _secret(origin, place)
            _refuse_secrets(inner, origin, place)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _refuse_secrets(inner, origin, f"{key}.{number}")
    elif isinstance(value, str) and holds_password(value):
        raise _secret(origin, key)


def _secret(origin: str, key: str) -> InputError:
    return InputError(
        f"{origin}: key {key}: looks like a secret, and a study's parameters are written to "
        "everything that it leaves",
        "take it out, and give it in the environment that enginebook is started from",
    )


def _describe(error: ValidationError, origin: str) -> tuple[str, str]:
    problems = [_problem(detail) for detail in error.errors(include_url=False)]
    return "\n".join(f"{origin}: {p}" for p in problems), "mend the keys named above"


def _problem(detail: Any) -> str:
    location: Location = tuple(part for part in detail["loc"] if part not in _TAGS)
    key = ".".join(str(part) for part in location) or "(top level)"
    if detail["type"] == "extra_forbidden":
        known = _known_keys(location[:-1], detail["loc"])
        return f"key {key}: unknown; {closest(str(location[-1]), known)}"
    if detail["type"] == "missing":
        return f"key {key}: is missing"
    shown = textwrap.shorten(reprlib.repr(detail.get("input")), 60, placeholder="...")
    return f"key {key}: {detail['msg']} (given: {shown})"


def _known_keys(parent: Location, whole: Location) -> list[str]:
    models: dict[str, type[Frozen]] = {"engines": EngineSpec, "model": ModelSpec}
    if not parent:
        return list(Study.model_fields)
    if parent[0] == "scenarios":
        kind = next((KINDS[str(p)] for p in whole if p in KINDS), ClosedLoop)
        return list(kind.model_fields)
    return list(models.get(str(parent[0]), Study).model_fields)


def load_study(path: Path) -> tuple[Study, dict[str, Any]]:
    """Return a study file as a validated study and as its flat parameters, as written.

    Raises
    ------
    InputError
        Naming file, key and remedy; nothing was started.
    """
    parameters = read_yaml(path)
    return study_from_parameters(parameters, str(path)), parameters
