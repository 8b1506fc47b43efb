# SPDX-License-Identifier: BSD-3-Clause
"""Why do the keys of a checkpoint not match those of a model? The usual causes, each with the call
that would mend it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from modtree._module.loading.key_rules import Found, Rules, find_rules, shown_rules
from modtree._module.loading.mismatch import Mismatch, shape_of

__all__ = ["likely_causes"]

_USUAL_NAMES = ("state_dict", "model_state_dict", "model", "module", "net", "weights", "params")
_FEW = 4  # names that a call has in it
_MOST_MAPPINGS = 16  # in which the state dict is looked for
_MOST_KEYS = 1000  # keys of a mapping in the mapping that are looked for in the model

#: What ends keys of modules that were quantized, and who writes it so.
_QUANTIZED = {
    "_packed_params._packed_params": "torch.ao.quantization",
    "SCB": "bitsandbytes",
    "weight.absmax": "bitsandbytes",
    "weight.quant_map": "bitsandbytes",
    "qweight": "GPTQ or AWQ",
    "qzeros": "GPTQ or AWQ",
}
_TABLES = ("lm_head.weight", "head.weight", "decoder.weight", "output.weight", "embed_out.weight")
_EMBEDDINGS = re.compile(r"(embed\w*|wte|tok\w*|shared|word_\w+)(\.\w+)*\.weight$")


def likely_causes(found: Mismatch) -> list[str]:
    """One sentence per cause that fits, the most telling first."""
    inner = _nested_state_dict(found)
    if inner is not None:
        return [inner]
    causes = [*_adapters(found), *_quantized(found)]
    rest = found
    if found.missing and found.unexpected:
        changed = find_rules(found)
        rest = changed.rest
        if changed.rules:
            causes.insert(0, _renames(changed))
    return causes + _others(rest, is_left=rest is not found)


def _others(found: Mismatch, is_left: bool) -> list[str]:
    """Causes that are no names; without calls where they are what a rename leaves."""
    finders = (_parametrizations, _ties, _layers, _transposed, _sizes)
    causes = [cause for find in finders for cause in find(found)]
    return [cause.partition(" Try: ")[0].rstrip(".:") if is_left else cause for cause in causes]


def _renames(changed: Found, mapping: str = "state_dict") -> str:
    """The call that renames keys, and what it would leave."""
    call = f"model.load_state_dict({mapping}, rename={shown_rules(changed.rules)}"
    reasons = "; ".join(changed.reasons)
    rest = changed.rest
    if rest.is_empty:
        return f"{reasons}. Try: {call})"
    left = [
        f"{len(keys)} {what}"
        for keys, what in (
            (rest.missing, "missing"),
            (rest.unexpected, "not expected"),
            (rest.shapes, "of another shape"),
        )
        if keys
    ]
    return f"{reasons}. Try: {call}, partial=True), which leaves {', '.join(left)}"


# -- what was given --------------------------------------------------------------------------------


def _nested_state_dict(found: Mismatch) -> str | None:
    if not found.unexpected or len(found.state_dict) > _MOST_KEYS or not found.missing:
        return None
    if set(found.state_dict) == {"state", "param_groups"}:
        return (
            "this is the state of an optimizer. Try: optimizer.load_state_dict(state_dict), and "
            "the state dict of the model here"
        )
    best: tuple[int, str, Mismatch, Found] | None = None
    for place, inner in itertools.islice(_mappings(found), _MOST_MAPPINGS):
        left = _mismatch_of(inner, found)
        changed = find_rules(left)
        fitting = len(found.missing) - len(changed.rest.missing)
        if fitting > 0 and (best is None or fitting > best[0]):
            best = fitting, place, left, changed
    if best is None:
        return None
    _, place, left, changed = best
    mapping = f"state_dict{place}"
    intro = (
        f"the mapping holds the state dict under {place}, as checkpoints with more than the "
        f"model's state do"
    )
    if left.is_empty:
        return f"{intro}. Try: model.load_state_dict({mapping})"
    if changed.rules:
        return f"{intro}; there, {_renames(changed, mapping)}"
    return f"{intro}. Try: model.load_state_dict({mapping}, partial=True)"


def _mappings(found: Mismatch) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The dicts in the mapping, those under usual names first, and the dicts in them."""
    unexpected = set(found.unexpected)
    first = [name for name in _USUAL_NAMES if name in unexpected]
    for key in dict.fromkeys((*first, *found.unexpected)):
        value: Any = found.state_dict.get(key)
        if not issubclass(type(value), dict):
            continue
        yield f"[{key!r}]", value
        if len(value) <= _MOST_KEYS:
            for name, inner in value.items():
                if type(name) is str and issubclass(type(inner), dict):
                    yield f"[{key!r}][{name!r}]", inner


def _mismatch_of(state_dict: Mapping[str, Any], found: Mismatch) -> Mismatch:
    """What the load of another mapping would find."""
    given = {key: value for key, value in state_dict.items() if type(key) is str}
    shapes = {}
    missing = []
    for key in found.missing:
        if key not in given:
            missing.append(key)
            continue
        saved, own = shape_of(given[key]), found.model_shape(key)
        if saved is not None and own is not None and saved != own:
            shapes[key] = saved, own
    of_model = set(found.missing)
    unexpected = [key for key in given if key not in of_model and found.model_shape(key) is None]
    return found._replace(missing=missing, unexpected=unexpected, shapes=shapes, state_dict=given)


def _adapters(found: Mismatch) -> Iterator[str]:
    adapters = [key for key in found.unexpected if ".lora_" in key]
    if not adapters:
        return
    if len(adapters) == len(found.state_dict):
        yield (
            "the state dict has the LoRA adapters of peft alone. Try: load the model that they "
            "were made for first, then peft.PeftModel.from_pretrained(model, folder)"
        )
        return
    yield (
        f"{len(adapters)} entries are LoRA adapters of peft, {adapters[0]!r} first. Try: "
        f"merge_and_unload() of the peft model before saving, or load what is below them"
    )


def _quantized(found: Mismatch) -> Iterator[str]:
    for key in found.unexpected:
        for ending, writer in _QUANTIZED.items():
            if key == ending or key.endswith(f".{ending}"):
                yield (
                    f"{key.removesuffix(ending).rstrip('.') or 'the root'!r} was quantized when it "
                    f"was saved ({writer}). Try: quantize the model in the same way before "
                    f"loading, or save it dequantized"
                )
                return


# -- parametrizations ------------------------------------------------------------------------------


def _parametrized(key: str) -> str | None:
    """The entry whose original a key is, or None."""
    path, _, name = key.rpartition(".")
    module, _, parametrized = path.rpartition(".")
    if name not in ("original", "original0") or not parametrized:
        return None
    if module.rpartition(".")[2] != "parametrizations":
        return None
    return module[: -len("parametrizations")] + parametrized


def _parametrizations(found: Mismatch) -> Iterator[str]:
    missing, unexpected = set(found.missing), set(found.unexpected)
    entries = [(key, entry) for key in found.missing if (entry := _parametrized(key)) is not None]
    for _, entry in entries:
        if entry in unexpected:
            yield (
                f"{entry!r} is parametrized in the model, and was not when it was saved. "
                "Try: load first and parametrize then"
            )
            break
    entries = [
        (key, entry) for key in found.unexpected if (entry := _parametrized(key)) is not None
    ]
    for key, entry in entries:
        if entry in missing:
            how = "parametrize the model in the same way before loading"
            if key.endswith(".original0"):
                names = [e for k, e in entries if k.endswith(".original0") and e in missing]
                how = _weight_norm("nn.utils.parametrizations.weight_norm", names)
            yield (
                f"{entry!r} was parametrized when it was saved, and is not in the model. Try: {how}"
            )
            break
        if f"{entry}_g" in missing and f"{entry}_v" in missing:
            rules: Rules = {
                re.compile(r"\bparametrizations\.(\w+)\.original0$"): r"\1_g",
                re.compile(r"\bparametrizations\.(\w+)\.original1$"): r"\1_v",
            }
            yield (
                f"{entry!r} was saved under parametrizations.weight_norm, the model has the older "
                f"weight_norm. Try: model.load_state_dict(state_dict, rename={shown_rules(rules)})"
            )
            break
    older = [
        key[:-2]
        for key in found.unexpected
        if key.endswith("_g") and key[:-2] in missing and key[:-2] + "_v" in unexpected
    ]
    if older:
        yield (
            f"{older[0]!r} was saved under weight_norm. Try: "
            f"{_weight_norm('nn.utils.weight_norm', older)}"
        )


def _weight_norm(function: str, entries: list[str]) -> str:
    """Calls that give modules of these entries their weight norm."""
    calls = []
    for entry in entries[:_FEW]:
        path, _, name = entry.rpartition(".")
        module = f"model.get_submodule({path!r})" if path else "model"
        calls.append(f"{function}({module}{'' if name == 'weight' else f', {name!r}'})")
    more = f", and so on for {len(entries)} entries" if len(entries) > _FEW else ""
    return f"{'; '.join(calls)}{more}, before loading"


# -- what is missing or has another shape ----------------------------------------------------------


def _ties(found: Mismatch) -> Iterator[str]:
    ties = {}
    for key in found.missing[:_FEW]:
        tie = found.tie(key)
        if tie is not None:
            ties[key] = tie
    tied = "is the same tensor as"
    if not ties and len(found.missing) == 1 and found.missing[0].endswith(_TABLES):
        shape = found.model_shape(found.missing[0])
        alike = [
            key
            for key in found.state_dict
            if _EMBEDDINGS.search(key) and shape_of(found.state_dict[key]) == shape
        ]
        if shape is not None and len(alike) == 1:
            ties = {found.missing[0]: alike[0]}
            tied = "was perhaps the same tensor as"
    if ties:
        pairs = ", ".join(f"{key!r}: state_dict[{tie!r}]" for key, tie in ties.items())
        key, tie = next(iter(ties.items()))
        yield (
            f"{key!r} {tied} {tie!r}, and files such as those of safetensors keep one of them. "
            f"Try: model.load_state_dict({{**state_dict, {pairs}}})"
        )


def _layers(found: Mismatch) -> Iterator[str]:
    """Blocks with numbers: are there more of them on one side?"""
    own, given = Counter[str](), Counter[str]()
    for keys, count in ((found.missing, own), (found.unexpected, given)):
        for prefix in {block for key in keys if (block := _block(key)) is not None}:
            count[prefix[0]] += 1
    if not own and not given:
        return
    unexpected = set(found.unexpected)
    both = {
        block
        for key in found.state_dict
        if key not in unexpected and (block := _block(key)) is not None
    }
    shared = Counter(path for path, _ in both)
    for path in (*own, *given):
        if not shared[path] or (own[path] and given[path]):
            continue
        of_model, of_state = shared[path] + own[path], shared[path] + given[path]
        all_of = {_block(k) for k in (found.missing if own[path] else found.unexpected)}
        if any(block in both for block in all_of if block is not None and block[0] == path):
            continue
        yield (
            f"{path!r} has {of_model} blocks in the model and {of_state} in the state dict. "
            f"Try: build the model with {of_state}, or load what fits with "
            f"model.load_state_dict(state_dict, partial=True)"
        )
        return


def _block(key: str) -> tuple[str, str] | None:
    """The path to the first number in a key, and the number."""
    match = re.match(r"([^\d.][^.]*(?:\.[^\d.][^.]*){0,40})\.(\d+)\.", key[:400])
    return (match[1], match[2]) if match else None


def _transposed(found: Mismatch) -> Iterator[str]:
    turned = _turned(found)
    if turned:
        yield (
            f"transposed entries ({len(turned)} of {len(found.shapes)} of the wrong shape), "
            f"{turned[0]!r} first, as Conv1D of GPT-2 and programs of TensorFlow keep weights of "
            f"Linear; square ones cannot be told from others. Try: own = model.state_dict(); "
            f"model.load_state_dict({{key: value.T if key in own and value.shape != "
            f"own[key].shape else value for key, value in state_dict.items()}})"
        )


def _turned(found: Mismatch) -> list[str]:
    return [
        key for key, (saved, own) in found.shapes.items() if len(own) > 1 and saved == own[::-1]
    ]


def _sizes(found: Mismatch) -> Iterator[str]:
    turned = set(_turned(found))
    shapes = {key: pair for key, pair in found.shapes.items() if key not in turned}
    pairs = Counter(
        (a, b)
        for saved, own in shapes.values()
        if len(saved) == len(own)
        for a, b in set(zip(saved, own, strict=True))
        if a != b
    )
    if not pairs:
        return
    (saved_size, own_size), count = pairs.most_common(1)[0]
    if len(shapes) > 2 and 2 * count > len(shapes):
        yield (
            f"the model was built with other sizes: {saved_size} in the checkpoint is "
            f"{own_size} in the model, in {count} entries. Try: build the model with {saved_size}"
        )
    elif all(saved[1:] == own[1:] and len(saved) == len(own) for saved, own in shapes.values()):
        yield (
            f"the first size of {next(iter(shapes))!r} is {saved_size} in the checkpoint and "
            f"{own_size} in the model, as with another vocabulary or number of classes. Try: "
            f"build the model with {saved_size}, or load the others with "
            f"model.load_state_dict(state_dict, partial=True)"
        )
