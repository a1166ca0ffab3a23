"""What a request says of its answer's form: the constraint, and the task in the prompt."""

from __future__ import annotations

from typing import Any

from enginebook.load.target import Target
from enginebook.load.workload import Workload
from enginebook.metrics.schemas import DEFAULT, SCHEMAS, schema_of


def constraint_fields(target: Target, workload: Workload, index: int) -> dict[str, Any]:
    """Return the body's fields that constrain the answer of request ``index``; empty for text.

    vLLM, SGLang and others take OpenAI's ``response_format`` in completions as in chat. llama.cpp
    takes it in chat, and in completions a bare ``json_schema`` object.
    """
    form = workload.answer_format
    schema = schema_of(form, workload.schema_name, workload.seed, index)
    if schema is None:
        return {}
    if target.constraint_field == "json_schema":
        return {"json_schema": schema}
    if form == "json_object":
        return {"response_format": {"type": "json_object"}}
    named = {"name": workload.schema_name or DEFAULT, "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def task_text(form: str, schema_name: str | None) -> str:
    """Return the task that ends each prompt of kind ``json``.

    It names the fields, so that an unconstrained answer can be right too; with a schema of its own
    for each request the fields have names of their own, and the constraint alone tells them.
    """
    fields = ", ".join(SCHEMAS[schema_name or DEFAULT]["properties"])
    told = "of the fields that are asked for" if form == "json_schema_each" else f"of {fields}"
    return (
        f"\n\nDescribe one thing from the text above as a JSON object {told}. "
        "Reply with the JSON object alone.\n"
    )
