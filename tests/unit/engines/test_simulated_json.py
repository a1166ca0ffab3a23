"""The simulated engine's answers under a constraint: valid by every schema that studies use."""

import json

import pytest
from jsonschema import Draft202012Validator

from enginebook.engines.launchers import simulated_json
from enginebook.metrics.schemas import SCHEMAS

SEEDS = range(50)


@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_are_valid(name):
    schema = SCHEMAS[name]
    for seed in SEEDS:
        text = "".join(simulated_json.pieces(schema, seed))
        assert Draft202012Validator(schema).is_valid(json.loads(text)), text


@pytest.mark.parametrize(
    ("body", "schema"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, simulated_json.ANY),
        ({"json_schema": {"type": "null"}}, {"type": "null"}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1}}}},
            {"a": 1},
        ),
    ],
)
def test_where_requests_say_it(body, schema):
    assert simulated_json.constraint(body) == schema


@pytest.mark.parametrize(
    ("schema", "allowed"),
    [
        ({"const": 7}, [7]),
        ({"enum": ["a", "b"]}, ["a", "b"]),
        ({"type": "boolean"}, [True, False]),
        ({"type": ["string", "null"]}, [None]),
        ({"type": "integer", "minimum": 5, "maximum": 6}, [5, 6]),
        ({"type": "array", "minItems": 2, "items": {"const": 1}}, [[1, 1]]),
        ({"type": "string", "maxLength": 1}, ["t"]),
        ({"type": "object", "properties": {"a": {"const": 1}, "b": {}}, "required": ["a"]},
         [{"a": 1}]),
    ],
)  # fmt: skip
def test_kinds(schema, allowed):
    for seed in SEEDS:
        assert simulated_json.instance(schema, schema, seed) in allowed


def test_texts_keep_their_lengths():
    schema = {"type": "string", "minLength": 6, "maxLength": 9}
    assert all(6 <= len(simulated_json.instance(schema, schema, s)) <= 9 for s in SEEDS)


def test_recursion_ends_where_it_may():
    deeper = {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}
    node = {"type": "object", "required": ["next"], "properties": {"next": deeper}}
    tree = {"$defs": {"t": node}, "$ref": "#/$defs/t"}
    value = simulated_json.instance(tree, tree, 0)
    depth = 0
    while value is not None:
        value, depth = value["next"], depth + 1
    assert 0 < depth <= simulated_json.DEEPEST


def test_endless_schemas_are_refused():
    endless = {"type": "object", "required": ["x"], "properties": {"x": {"$ref": "#"}}}
    with pytest.raises(ValueError, match="endless depth"):
        simulated_json.instance(endless, endless, 0)


def test_pieces_join_to_the_text():
    schema = SCHEMAS[next(iter(SCHEMAS))]
    made = simulated_json.pieces(schema, 3)
    assert len(made) > 5
    assert all(len(p) == simulated_json.PIECE for p in made[:-1])
    json.loads("".join(made))
