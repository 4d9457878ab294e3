"""`fast`: refused where it cannot run, and never mixed with the exact answers."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

import covey
from covey.engine import identity, loaded
from covey.engine.loaded import LoadedEngine
from covey.engine.local import LocalModel, planned_costs, rates_key
from covey.errors import InputError, ModelError
from covey.kernels import choose
from covey.kernels.base import AttentionConfig, Kernels, Weight
from covey.kernels.fast import EXACT, FAST_NAMES, Fast, read_fast
from covey.kernels.reference import ReferenceKernels
from covey.kernels.scales import quantise_weight
from covey.models.causal_lm import CausalLM, load_weights, rope_frequencies
from covey.models.files import ModelFiles
from covey.models.spec import WeightDtype
from covey.testing import PlantedModel
from models.batches import prompts_batch, random_ids
from models.tiny import VOCAB, make_model, plain_logits, write_folder

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    # Widths of whole 128s, as fp8-blocks needs them.
    theirs = make_model(
        "qwen3", tied=True, hidden_size=128, intermediate_size=384, num_key_value_heads=4
    )
    return theirs, write_folder(tmp_path_factory.mktemp("fast") / "model", theirs)


def test_names_are_read_alone_or_together_and_the_nearest_is_named() -> None:
    assert read_fast(()) == EXACT and not EXACT.names
    assert read_fast("fp8-blocks") == Fast(blocks=True)
    both = read_fast(["fp8-attention", "fp8-blocks"])
    assert both == Fast(True, True) and both.names == ("fp8-blocks", "fp8-attention")
    with pytest.raises(InputError, match=r"no 'fp8-block'\. Did you mean fp8-blocks"):
        covey.connect("smollm2-135m", fast="fp8-block")
    with pytest.raises(InputError, match="names: fp8-blocks, fp8-attention; not True"):
        covey.connect("smollm2-135m", fast=True)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not for one of type PlantedModel"):
        covey.connect(PlantedModel(lambda q, d: 1.0), fast="fp8-blocks")


@pytest.mark.parametrize("name", FAST_NAMES)
def test_a_processor_refuses_what_it_cannot_do(pair: tuple[Any, Path], name: str) -> None:
    with pytest.raises(ModelError, match=rf"fast={name} cannot run here: .*H100.* processor"):
        LocalModel(pair[1], device="cpu", fast=name).open()


def test_another_card_is_refused_by_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = AttentionConfig(4, 2, 64, 1e-6, torch.ones(32))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    with pytest.raises(ModelError, match=r"fp8-attention cannot run here: .* an NVIDIA A100"):
        choose.choose_kernels(shape, GPU, torch.bfloat16, False, Fast(attention=True))


def test_heads_that_are_no_group_are_refused_in_fp8(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = AttentionConfig(4, 2, 64, 1e-6, torch.ones(32))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(choose, "missing_package", lambda: None)
    asked: list[tuple[Any, ...]] = []
    hopper = types.ModuleType("hopper")
    hopper.load_hopper = lambda *a: (asked.append(a), "chosen")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "covey.kernels.hopper.kernels", hopper)
    reason = choose.unfit(shape, GPU, torch.bfloat16, True)
    assert reason is not None and "heads of 128" in reason
    with pytest.raises(ModelError, match=r"fp8-blocks cannot run here: .*heads of 128"):
        choose.choose_kernels(shape, GPU, torch.bfloat16, False, Fast(blocks=True))
    wide = AttentionConfig(4, 2, 128, 1e-6, torch.ones(64))
    for fast in (EXACT, Fast(blocks=True), Fast(attention=True)):
        assert choose.choose_kernels(wide, GPU, torch.bfloat16, False, fast)[1] == "chosen"
    assert [rest for _, _, *rest in asked] == [[False, False], [True, False], [False, True]]


def logits(folder: Path, quantised: bool, ids: list[int]) -> torch.Tensor:
    files = ModelFiles(folder)
    spec = files.spec
    shape = AttentionConfig(
        spec.heads, spec.kv_heads, spec.d_head, spec.norm_eps, rope_frequencies(spec)
    )
    weights = load_weights(spec, files.checkpoint(), CPU, torch.float32, quantise_weight)
    scales = weights.layers[0].down.scales
    assert scales is not None and scales.shape == (spec.hidden // 128, 3)
    reference = ReferenceKernels(shape, CPU, torch.float32, quantised)
    return CausalLM(spec, weights, reference).logits(prompts_batch([ids]), None)[0]


def test_a_rounded_model_is_near_the_exact_one(pair: tuple[Any, Path]) -> None:
    theirs, folder = pair
    ids = random_ids(40, VOCAB, seed=40)
    exact = plain_logits(theirs, ids)
    # e4m3 keeps three mantissa bits: a few percent an input, averaged over each product.
    for quantised in (False, True):
        found = logits(folder, quantised, ids)
        assert 1e-4 < (found - exact).norm() / exact.norm() < 0.2


def test_matrices_that_the_products_cannot_take_are_refused_with_the_mend() -> None:
    with pytest.raises(ModelError, match=r"fast='fp8-blocks' .*one of 128 x 64\. Leave it out"):
        quantise_weight(Weight(torch.randn(128, 64)))
    with pytest.raises(ModelError, match=r"holds blocks of FP8 already: leave fast='fp8-blocks'"):
        quantise_weight(quantise_weight(Weight(torch.randn(128, 128))))


def open_engine(folder: Path, fast: tuple[str, ...]) -> LoadedEngine:
    engine = LocalModel(folder, device="cpu", fast=fast).open()
    assert isinstance(engine, LoadedEngine)
    return engine


def test_each_way_has_answers_rates_and_records_of_its_own(
    pair: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pair[1]

    def reference(
        geometry: AttentionConfig,
        device: torch.device,
        dtype: torch.dtype,
        quantised: bool,
        fast: Fast,
    ) -> tuple[Kernels[Any], None]:
        return ReferenceKernels(geometry, device, dtype, fast.blocks), None

    monkeypatch.setattr(loaded, "choose_kernels", reference)
    # The model is new; otherwise only files that have lain for a while are remembered.
    monkeypatch.setattr(identity, "_SETTLED_SECONDS", -10.0)
    ways: list[tuple[str, ...]] = [(), *((name,) for name in FAST_NAMES)]
    ways.append(FAST_NAMES)
    prints = {open_engine(folder, fast).fingerprint for fast in ways}
    assert len(prints) == len(ways)
    assert open_engine(folder, ways[-1][::-1]).fingerprint in prints
    known = {LocalModel(folder, device="cpu", fast=fast).profile().fingerprint for fast in ways}
    assert known == prints
    spec = ModelFiles(folder).spec
    costs = planned_costs(spec, True, 1024)
    keys = {rates_key(spec, costs, read_fast(fast)) for fast in ways}
    assert len(keys) == len(ways)


def test_a_bf16_model_is_planned_in_fp8() -> None:
    spec = LocalModel("qwen3-0.6b").spec
    assert planned_costs(spec, True, 1024).compute is WeightDtype.BFLOAT16
    costs = planned_costs(spec, True, 1024, Fast(blocks=True))
    assert costs.compute is WeightDtype.FLOAT8 and costs.attention is WeightDtype.BFLOAT16
