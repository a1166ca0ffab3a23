"""The shape of a decoder-only transformer: parameters, FLOPs and KV bytes, from a HF config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from enginebook.physics.configs import experts_of, latent_of, plain_fields, text_config


@dataclass(frozen=True)
class Experts:
    """Mixture of experts: every layer beyond `dense_layers` has `count` experts, `active` a token.

    `ffn` is the inner width of one expert, `shared_ffn` that of the experts every token visits.
    """

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0

    def expected_read(self, tokens: int) -> float:
        """Return how many distinct experts a layer reads when routing is uniform."""
        return self.count * (1 - (1 - self.active / self.count) ** tokens)

    def least_read(self, tokens: int) -> float:
        """Return how many a layer must read at the least: all tokens chose the same ones."""
        return float(self.active) if tokens else 0.0


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): what is cached is one latent row a token."""

    q_rank: int  # 0: the query projection is not factored
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True)
class ModelShape:
    """All that bounds need to know of a model.

    Attributes
    ----------
    mlp_matrices
        3 for gated MLPs (gate, up, down), 2 for plain ones.
    window, windowed_layers
        Sliding-window attention: how many layers see only the last `window` tokens.
    vector_params
        Norms and biases, which take part in no matrix product.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    mlp_matrices: int = 3
    experts: Experts | None = None
    latent: LatentAttention | None = None
    window: int = 0
    windowed_layers: int = 0
    vector_params: int = 0

    @classmethod
    def from_hf(cls, config: Mapping[str, Any], name: str = "") -> ModelShape:
        """Return the shape that a Hugging Face ``config.json`` describes.

        Raises
        ------
        InputError
            When a size is missing, or the layers are not all attention (Mamba, RWKV, hybrids),
            for which these bounds would be wrong.
        """
        text = text_config(config)
        experts, latent = experts_of(text), latent_of(text)
        return cls(
            name=name or str(config.get("_name_or_path") or config.get("model_type") or "model"),
            experts=Experts(**experts) if experts else None,
            latent=LatentAttention(**latent) if latent else None,
            **plain_fields(text),
        )

    # -- parameters ------------------------------------------------------------------------------
    @property
    def attention_params(self) -> int:
        """Return the matmul parameters of one layer's attention."""
        if self.latent is None:
            return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        m, d = self.latent, self.hidden
        q_out = self.heads * (m.nope_dim + m.rope_dim)
        query = m.q_rank * (d + q_out) if m.q_rank else d * q_out
        key_value = d * (m.kv_rank + m.rope_dim)
        key_value += m.kv_rank * self.heads * (m.nope_dim + m.value_dim)
        return query + key_value + self.heads * m.value_dim * d

    @property
    def expert_params(self) -> int:
        """Return the parameters of one expert in one layer; 0 in a dense model."""
        return self.mlp_matrices * self.hidden * self.experts.ffn if self.experts else 0

    @property
    def expert_layers(self) -> int:
        """Return how many layers have experts."""
        return self.layers - self.experts.dense_layers if self.experts else 0

    def linear_params(self, experts_read: float | None = None) -> float:
        """Return the matmul parameters of all layers, without embeddings and head.

        Parameters
        ----------
        experts_read
            How many experts of each layer count; None: all of them.
        """
        dense = self.mlp_matrices * self.hidden * self.ffn
        total: float = self.layers * self.attention_params
        total += (self.layers - self.expert_layers) * dense
        if self.experts:
            counted = self.experts.count if experts_read is None else experts_read
            shared = self.mlp_matrices * self.hidden * self.experts.shared_ffn
            router = self.hidden * self.experts.count
            total += self.expert_layers * (counted * self.expert_params + shared + router)
        return total

    @property
    def active_params(self) -> float:
        """Return the matmul parameters that one token passes through, without the head."""
        return self.linear_params(self.experts.active if self.experts else None)

    @property
    def head_params(self) -> int:
        """Return the parameters of the output head (the embedding table has as many)."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """Return all parameters."""
        tables = self.head_params * (1 if self.tied else 2)
        return int(self.linear_params()) + tables + self.vector_params

    # -- work ------------------------------------------------------------------------------------
    @property
    def attention_flops_per_position(self) -> float:
        """Return the FLOPs of scores and values, per query token and position, over all layers."""
        if self.latent is None:
            return 4.0 * self.layers * self.heads * self.head_dim
        m = self.latent
        return 2.0 * self.layers * self.heads * (m.nope_dim + m.rope_dim + m.value_dim)

    def visible(self, positions: float) -> float:
        """Return how many positions a query sees, averaged over the layers."""
        if not self.windowed_layers:
            return positions
        share = self.windowed_layers / self.layers
        return (1 - share) * positions + share * min(positions, self.window)

    def prefill_flops(self, tokens: int, cached: int = 0) -> float:
        """Return the FLOPs of a prompt: `tokens` new ones after `cached` ones, one row of logits.

        The mask is causal: token i sees `cached` + i positions; a window is taken at the mean
        position, which never counts more than is needed.
        """
        matmul = 2 * self.active_params * tokens + 2 * self.head_params
        positions = self.visible(cached + (tokens + 1) / 2)
        if self.windowed_layers:
            positions = min(positions, self.visible(cached + tokens) / 2 + cached / 2)
        return matmul + self.attention_flops_per_position * tokens * positions

    def decode_flops(self, batch: int, context: float) -> float:
        """Return the FLOPs of one decode step of `batch` sequences with this mean context."""
        matmul = 2 * (self.active_params + self.head_params)
        return batch * (matmul + self.attention_flops_per_position * self.visible(context))

    @property
    def kv_values_per_token(self) -> int:
        """Return how many numbers one token keeps in the cache, over all layers."""
        if self.latent is not None:
            return self.layers * (self.latent.kv_rank + self.latent.rope_dim)
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def kv_shards(self) -> int:
        """Return over how many devices the cache can be split; beyond that it is copied.

        A latent row has no heads, but engines that serve such models give each request to one
        device (data-parallel attention), which splits the cache without limit.
        """
        return self.kv_heads if self.latent is None else self.heads
