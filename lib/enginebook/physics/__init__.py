"""Physics of inference: model shapes, hardware ceilings, and limits that nothing can beat.

>>> from enginebook.physics import ModelShape, Placement, decode_bound, hardware_named
"""

from enginebook.physics.audit import WorkDone, audit_cells, possibility, require_possible
from enginebook.physics.bounds import (
    Bound,
    Placement,
    all_reduce_s,
    crossover_batch,
    decode_bound,
    kv_bytes_per_token,
    prefill_bound,
    serial_rate_limit,
    served_rate_limit,
    step_weight_bytes,
    tensor_parallel_s,
    weight_bytes,
)
from enginebook.physics.capacity import (
    kv_capacity_tokens,
    sequences_that_fit,
    speculative_factor,
    weights_share,
    widest_weights_bits,
)
from enginebook.physics.hardware import Hardware, hardware_named, hardware_table
from enginebook.physics.hypotheses import Hypothesis, fit_hypotheses, usual_hypotheses
from enginebook.physics.little import littles_law
from enginebook.physics.loads import with_work
from enginebook.physics.models import model_named
from enginebook.physics.precision import BF16, FP8, INT4_G128, NVFP4, Precision, precision_named
from enginebook.physics.served import gguf_precision, most_tokens_a_step, served_precision
from enginebook.physics.shapes import Experts, LatentAttention, ModelShape

__all__ = [
    "BF16",
    "FP8",
    "INT4_G128",
    "NVFP4",
    "Bound",
    "Experts",
    "Hardware",
    "Hypothesis",
    "LatentAttention",
    "ModelShape",
    "Placement",
    "Precision",
    "WorkDone",
    "all_reduce_s",
    "audit_cells",
    "crossover_batch",
    "decode_bound",
    "fit_hypotheses",
    "gguf_precision",
    "hardware_named",
    "hardware_table",
    "kv_bytes_per_token",
    "kv_capacity_tokens",
    "littles_law",
    "model_named",
    "most_tokens_a_step",
    "possibility",
    "precision_named",
    "prefill_bound",
    "require_possible",
    "sequences_that_fit",
    "serial_rate_limit",
    "served_precision",
    "served_rate_limit",
    "speculative_factor",
    "step_weight_bytes",
    "tensor_parallel_s",
    "usual_hypotheses",
    "weight_bytes",
    "weights_share",
    "widest_weights_bits",
    "with_work",
]
