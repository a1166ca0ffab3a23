"""Answers constrained to JSON: what is asked of each server, the task in the prompt, the length."""

from __future__ import annotations

import json

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from load_support import DONE, END, STREAM_HEAD, sse, text, usage
from tokenizers import Tokenizer, models, pre_tokenizers

from enginebook.errors import InputError
from enginebook.load import Target, Workload
from enginebook.load.constraints import constraint_fields, task_text
from enginebook.load.corpus import prose
from enginebook.load.plan import make_plan
from enginebook.load.prompts import exact_text, load_source, prompt_source, save_source
from enginebook.load.target import body_of
from enginebook.load.tokens import LocalTokens
from enginebook.metrics import cell_metrics, summarise
from enginebook.metrics.gate import gate
from enginebook.metrics.schemas import SCHEMAS, mark, schema_of

TARGET = Target("http://127.0.0.1:1", "m")
LLAMACPP = Target("http://127.0.0.1:1", "m", constraint_field="json_schema")


def load(form="json_schema", schema=None, **changes):
    base = {"concurrency": 1, "requests": 4, "prompts": "json", "input_tokens": 96}
    return Workload(**base | {"answer_format": form, "schema_name": schema} | changes)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one_and_demands_all_it_names(name):
    schema = SCHEMAS[name]
    Draft202012Validator.check_schema(schema)
    assert schema["required"] == list(schema["properties"])
    assert schema["additionalProperties"] is False
    assert not Draft202012Validator(schema).is_valid({})


def test_the_set_has_the_shapes_that_it_promises():
    assert len(SCHEMAS["flat"]["properties"]) == 5
    inner = SCHEMAS["nested"]["properties"]["site"]["properties"]["address"]
    assert set(inner["properties"]) == {"street", "number"}
    colours = SCHEMAS["enum200"]["properties"]["colour"]["enum"]
    assert len(set(colours)) == 200
    assert SCHEMAS["array"]["properties"]["crates"]["items"]["type"] == "object"
    tree = {"whole": {"part": "lamp", "inside": {"part": "wick", "inside": None}}}
    assert Draft202012Validator(SCHEMAS["recursive"]).is_valid(tree)
    tree["whole"]["inside"]["inside"] = {"part": 1, "inside": None}
    assert not Draft202012Validator(SCHEMAS["recursive"]).is_valid(tree)


def test_openai_s_form_goes_to_every_server_but_llama_cpp_s_completions():
    flat = SCHEMAS["flat"]
    assert constraint_fields(TARGET, load("text"), 0) == {}
    assert constraint_fields(TARGET, load("json_object"), 0) == {
        "response_format": {"type": "json_object"}
    }
    assert constraint_fields(TARGET, load(), 0) == {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "flat", "strict": True, "schema": flat},
        }
    }
    assert constraint_fields(LLAMACPP, load(), 0) == {"json_schema": flat}
    assert constraint_fields(LLAMACPP, load("json_object"), 0) == {
        "json_schema": {"type": "object"}
    }


def test_with_a_schema_for_each_no_two_requests_have_the_same():
    schemas = [
        json.dumps(constraint_fields(TARGET, load("json_schema_each", "nested"), i))
        for i in range(-50, 200)
    ]
    assert len(set(schemas)) == 250
    again = constraint_fields(TARGET, load("json_schema_each", "nested"), 7)
    assert json.dumps(again) == schemas[57], "every engine gets the same"
    assert len({mark(3, i) for i in range(-2000, 2000)}) == 4000
    schema = schema_of("json_schema_each", "recursive", 1, 5)
    assert set(schema["$defs"]["part"]["properties"]) == {"part_1a", "inside_1a"}
    assert schema["$defs"]["part"]["required"] == ["part_1a", "inside_1a"]


def test_the_answer_ends_by_itself_whatever_forces_lengths_otherwise():
    forced = Target("http://127.0.0.1:1", "m", extra_body={"min_tokens": 5, "n_predict": 5})
    body = json.loads(body_of(forced, [1], 40))
    assert (body["ignore_eos"], body["min_tokens"], body["n_predict"]) == (True, 40, 40)
    free = json.loads(body_of(forced, [1], 40, {"response_format": {}}, free_length=True))
    assert free["ignore_eos"] is False
    assert "min_tokens" not in free
    assert (free["max_tokens"], free["n_predict"], free["response_format"]) == (40, 40, {})


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"form": "xml"}, "unknown answer format"),
        ({"schema": "cube"}, "unknown schema"),
        ({"form": "json_object", "schema": "flat"}, "no meaning"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, hint):
    with pytest.raises(InputError, match=hint):
        load(**changes)


def test_free_length_follows_from_the_format_and_the_task():
    assert not Workload(concurrency=1, requests=1).free_length
    assert load("text").free_length
    assert load("json_object", prompts="text").free_length


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    prose_words = prose(20_000).split()
    words = sorted({*task_text("json_schema", "flat").split(), *prose_words, *"abcdefghijklmnop"})
    vocabulary = {w: i for i, w in enumerate(["?", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return LocalTokens(path)


def words_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text(" ".join("abcdefghijklmnop"[i % 16] for i in range(3000)))
    return path


def test_the_task_ends_every_prompt_and_the_length_stays_exact(tmp_path, tokens):
    workload = load(input_tokens=60)
    source = prompt_source(workload, tokens)
    save_source(source, tmp_path / "s.npz")
    source = load_source(tmp_path / "s.npz", workload)
    task = tokens.encode(task_text("json_schema", None))
    assert 10 < len(task) < 50
    prompts = [source.ids(i, 60).tolist() for i in range(-3, 30)]
    assert {len(p) for p in prompts} == {60}
    assert all(p[-len(task) :] == task for p in prompts)
    assert len({tuple(p[:2]) for p in prompts}) == 33, "and no two begin alike"
    assert len(source.ids(0, 8)) == 8, "a prompt too short for the task keeps its end"
    assert source.ids(0, 8).tolist()[2:] == task[-6:]


def test_as_text_the_task_stays_whole_too(tokens):
    task = tokens.encode(task_text("json_schema", None))
    ids = np.array(tokens.encode("a b c d e f g h i j k l m n o p " * 4))
    for length in (30, 40, 50):
        made = exact_text(tokens, ids, length, np.array(task))
        assert len(tokens.encode(made)) == length
        assert made.endswith(tokens.decode(task))


def test_other_prompts_have_no_task(tokens, tmp_path):
    workload = Workload(concurrency=1, requests=1, prompts="file", prompt_file=words_file(tmp_path))
    assert len(prompt_source(workload, tokens).tail) == 0


FLAT = {"name": "pump", "place": "mill", "year": 1899, "broken": False, "kind": "machine"}


def answered(value, tokens=20):
    words = json.dumps(value).replace('"', '\\"')
    half = len(words) // 2
    half -= words[:half].endswith("\\")
    pieces = [sse(text(words[:half])), sse(text(words[half:])), sse(usage(tokens, 96)), DONE, END]
    return [STREAM_HEAD, *pieces]


def test_from_the_wire_to_the_share_of_valid_answers(serve_script, drive):
    wrong = FLAT | {"kind": "planet"}
    server = serve_script(answered(FLAT), answered(wrong), answered([FLAT]), answered(FLAT, 33))
    workload = load("json_schema", "flat", output_tokens=64)
    records = drive(Target(server.url, "m"), workload)
    sent = json.loads(server.requests[0].partition(b"\r\n\r\n")[2])
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMAS["flat"]
    assert sent["ignore_eos"] is False
    asked = {"answer_format": "json_schema", "schema_name": "flat", "prompts": "json", "seed": 1}
    found = cell_metrics(summarise(records), asked, records=records)
    assert found["valid_json_share"] == (0.5, 4)
    spent = summarise(records)["e2e_ms"]["mean"] * 4
    assert found["time_per_valid_answer_ms"] == (pytest.approx(spent / 2), 2)
    checks = gate(records, workload).checks
    assert checks["output_length"]["ok"] is True
    assert "23.2 tokens in the mean" in checks["output_length"]["detail"]


def test_an_answer_beyond_what_was_allowed_fails_the_gate(serve_script, drive):
    server = serve_script(answered(FLAT, 65))
    workload = load(output_tokens=64, requests=1)
    records = drive(Target(server.url, "m"), workload)
    assert gate(records, workload).checks["output_length"]["ok"] is False


def test_requests_of_a_plan_carry_their_own_schemas(serve_script, drive):
    server = serve_script(answered(FLAT))
    workload = load("json_schema_each", requests=3, warmup_requests=2)
    drive(Target(server.url, "m", constraint_field="json_schema"), workload)
    bodies = [json.loads(r.partition(b"\r\n\r\n")[2]) for r in server.requests]
    assert len({json.dumps(b["json_schema"]) for b in bodies}) == 5
    assert make_plan(workload).count == 3
