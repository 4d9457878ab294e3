"""What a token of a model costs, in operations and bytes; no torch here."""

from __future__ import annotations

from dataclasses import dataclass

from covey.models.spec import ModelSpec, WeightDtype


@dataclass(frozen=True, slots=True)
class ModelCosts:
    """The unit costs of a model as it runs on a device.

    Attributes:
        projection_flops: of the four attention projections, a fresh token.
        mlp_flops: of the feed-forward layers, a fresh token.
        pair_flops: of attention, a (query, key) pair.
        kv_bytes: of one token's keys and values.
        projection_bytes, mlp_bytes: weights read once a pass.
        compute: dtype in which the weights are multiplied.
        attention: dtype in which attention is computed and kept.
        budget: fresh tokens of a full pass.
    """

    projection_flops: float
    mlp_flops: float
    pair_flops: float
    kv_bytes: float
    projection_bytes: float
    mlp_bytes: float
    compute: WeightDtype
    attention: WeightDtype
    budget: int


def costs_of(
    spec: ModelSpec, compute: WeightDtype, attention: WeightDtype, budget: int
) -> ModelCosts:
    """The unit costs of a model: 2 operations a weight and token, 4·heads·d_head·layers a pair.

    Args:
        spec: the model.
        compute, attention, budget: see `ModelCosts`.
    """
    return ModelCosts(
        projection_flops=2.0 * spec.attention_parameters,
        mlp_flops=2.0 * spec.mlp_parameters,
        pair_flops=float(spec.flops_per_pair),
        kv_bytes=float(spec.kv_bytes_per_token(attention.bytes)),
        projection_bytes=float(spec.attention_parameters * compute.bytes),
        mlp_bytes=float(spec.mlp_parameters * compute.bytes),
        compute=compute,
        attention=attention,
        budget=budget,
    )
