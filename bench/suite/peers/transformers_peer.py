"""Hugging Face transformers on the CPU: batches of whole prompts, nothing shared.

Settings: batch (prompts in one forward pass, default 8), threads.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).parent))
from protocol import Outcome, Peer, Stage, Work, by_stage, main


class Transformers(Peer):
    """A causal model in float32."""

    name = "transformers"

    def load(self, model: str, settings: dict[str, Any]) -> dict[str, str]:
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(settings.get("threads", torch.get_num_threads()))
        self._batch = settings.get("batch", 8)
        self._model = _load(Path(model)).eval()
        return {"transformers": transformers.__version__, "torch": torch.__version__}

    def run(self, work: Work) -> Outcome:
        def ask(stage: Stage) -> tuple[int, np.ndarray]:
            if stage.labels:
                return self._classify(stage)
            return self._judge(stage, work)

        with torch.inference_mode():
            outcome = by_stage(work, ask)
        unit = 1 if sys.platform == "darwin" else 1024
        outcome.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return outcome

    def _judge(self, stage: Stage, work: Work) -> tuple[int, np.ndarray]:
        """Log-odds of TRUE over FALSE at the last token of each prompt."""
        margins = np.empty((len(stage), 1))
        true, false = list(work.true), list(work.false)
        fresh = 0
        for rows in self._batches(stage.lengths()):
            prompts = [stage.prompt(int(row)) for row in rows]
            fresh += sum(map(len, prompts))
            states = self._states(prompts)
            last = torch.tensor([len(ids) - 1 for ids in prompts])
            logits = self._model.get_output_embeddings()(states[torch.arange(len(rows)), last])
            logits = logits.float()
            odds = logits[:, true].logsumexp(1) - logits[:, false].logsumexp(1)
            margins[rows, 0] = odds.numpy()
        return fresh, margins

    def _classify(self, stage: Stage) -> tuple[int, np.ndarray]:
        """Log-probabilities of the labels, by Covey's rule: where labels part, a choice among
        the tokens that some label has next."""
        scores = np.empty((len(stage), len(stage.labels)))
        fresh = 0
        for index in range(len(stage)):
            prompt = stage.prompt(index)
            texts = [[*prompt, *label] for label in stage.labels]
            for start in range(0, len(texts), self._batch):
                group = texts[start : start + self._batch]
                fresh += sum(map(len, group))
                states = self._states(group)
                for i, ids in enumerate(group):
                    own = states[i, len(prompt) - 1 : len(ids) - 1]
                    logits = self._model.get_output_embeddings()(own).float()
                    label = stage.labels[start + i]
                    scores[index, start + i] = _log_probability(label, stage.labels, logits)
        return fresh, scores

    def _batches(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Prompts of like length together, so that little is padding."""
        order = np.argsort(lengths, kind="stable")
        return [order[i : i + self._batch] for i in range(0, len(order), self._batch)]

    def _states(self, prompts: list[list[int]]) -> torch.Tensor:
        """(prompts, longest, hidden) last hidden states; short prompts are padded behind."""
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        mask = torch.zeros(len(prompts), longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, : len(prompt)] = torch.tensor(prompt)
            mask[row, : len(prompt)] = 1
        states: torch.Tensor = self._model.base_model(
            input_ids=ids, attention_mask=mask, use_cache=False
        ).last_hidden_state
        return states


def _log_probability(
    label: tuple[int, ...], labels: tuple[tuple[int, ...], ...], logits: torch.Tensor
) -> float:
    """Of one label, given the (tokens, vocabulary) logits before each of its tokens."""
    total = 0.0
    for place, token in enumerate(label):
        same = [other for other in labels if other[:place] == label[:place]]
        if any(len(other) == place for other in same):
            raise NotImplementedError("a label that begins another one")
        choices = sorted({other[place] for other in same})
        if len(choices) > 1:
            chances = logits[place, choices].log_softmax(0)
            total += float(chances[choices.index(token)])
    return total


def _load(path: Path) -> Any:
    if path.suffix != ".gguf":
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    # `from_pretrained(gguf_file=…)` wants the tokenizer's files too; token ids come made.
    config = load_gguf_checkpoint(str(path))["config"]
    model = LlamaForCausalLM(LlamaConfig(**config))
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or set(missing) - {"lm_head.weight"}:
        raise ValueError(f"{path} does not fill the model: {missing} {unexpected}")
    return model


if __name__ == "__main__":
    sys.exit(main(Transformers()))
