# SPDX-License-Identifier: BSD-3-Clause
"""Which tests of the ``impl`` fixture run with jax arrays too: those of ``tests/module``, but for
the files and tests below.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["choose", "has"]

METHODS = "the test calls methods or reads attributes of torch's tensors that arrays do not have"
NEVER_CHANGE = "arrays never change: another one takes the place"
TIES = "what is one array stays one, in conversions, loads and state dicts"
BARE = "an array without a mark may be a parameter"
NO_GRADIENT = "arrays do not have a gradient or a graph"
CLASSES = "the test names, shows or derives classes of tensors"
NAMES = "names of dtypes are dtypes in to()"
UNINITIALIZED = "what has no shape yet is NumPy's, until the first call (test_jax_family.py)"

#: Files without that side.
LEFT_OUT = {
    "test_backward_hooks": NO_GRADIENT,
    "test_backward_hook_values": NO_GRADIENT,
    "test_backward_hook_passes": NO_GRADIENT,
    "test_global_backward_hooks": NO_GRADIENT,
    "test_conversions_no_grad": NO_GRADIENT,
    "test_zero_grad": NO_GRADIENT,
    "test_parameter": CLASSES,
    "test_leaf_protocols": CLASSES,
    "test_copied_parameters": CLASSES,
    "test_copied_buffers": CLASSES,
    "test_apply_shortcuts": NEVER_CHANGE,
    "test_lazy": UNINITIALIZED,
    "test_uninitialized": UNINITIALIZED,
    "test_torch_sources": NO_GRADIENT,
}

#: Tests that are skipped: reason -> file -> their names.
SKIPPED: dict[str, dict[str, str]] = {
    METHODS: {
        "test_apply": """
            test_recurse_false_stays_in_the_module
            test_nothing_is_rolled_back
            test_conversion_keeps_the_parameter_object
            test_frozen_parameter_stays_frozen
            test_move_to_meta_replaces_the_parameter
            test_only_a_leaf_can_be_replaced
        """,
        "test_buffer": """
            test_construction
            test_requires_grad_is_kept
            test_tensor_class_is_kept
            test_buffer_of_a_parameter_and_back
            test_mark_survives_conversions_that_do_nothing
            test_mark_survives_copies
        """,
        "test_conversions": """
            test_tensors_of_a_class_of_their_own_keep_it
            test_cast_methods_leave_complex_tensors_alone
            test_to_tensor_takes_its_device_too
            test_to_meta_moves_everything
            test_memory_format_applies_to_images_only
            test_devices_are_judged_by_their_tensors
            test_casting_meta_tensors_keeps_them
            test_to_empty_from_meta
            test_to_empty_recurse_false
            test_what_something_else_in_a_registry_is_asked_for
            test_meta_tensors_cannot_be_shared
            test_to_refuses_integer_dtypes
        """,
        "test_internal_attributes": "test_a_stand_in_walks_what_it_stands_for",
        "test_load_assign": """
            test_loading_into_meta_warns
            test_meta_into_meta
            test_assign_makes_a_meta_model_real
            test_assign_installs_new_parameters_on_the_checkpoints_storage
            test_assign_installs_a_given_parameter_itself
        """,
        "test_load_overrides": "test_extra_state_inside_extra_state",
        "test_load_state_dict": "test_dtype_is_converted",
        "test_names_of_str_classes": "test_a_state_dict_is_pickled_without_classes_of_names",
        "test_train_eval": "test_requires_grad_sets_every_parameter",
    },
    NEVER_CHANGE: {
        "test_apply": """
            test_conversion_may_change_the_shape
            test_only_a_parameter_can_be_replaced
            test_swap_mode_keeps_identity_across_devices
            test_swap_mode_wins_over_overwrite_mode
            test_swap_mode_makes_a_parameter_of_a_plain_tensor
            test_overwrite_flag_replaces_even_an_unchanged_tensor
        """,
        "test_conversions": """
            test_cast_methods_touch_only_floating_point
            test_to_forms_that_cast
            test_to_empty_keeps_the_parameter_on_the_same_device
            test_share_memory
        """,
        "test_copy_pickle": "test_a_copy_shares_nothing",
        "test_load_assign": """
            test_assign_installs_buffers_themselves
            test_assign_of_a_parameter_for_a_buffer_moves_the_name
            test_assign_of_a_non_persistent_buffer_object
            test_swap_mode_keeps_the_parameter
        """,
        "test_load_state_dict": "test_values_are_copied_in_place",
        "test_state_dict": "test_values_are_detached_and_share_storage",
        "test_state_dict_repeated": "test_values_are_those_of_the_call",
    },
    TIES: {
        "test_apply": """
            test_fn_runs_per_registration
            test_replacement_breaks_ties
            test_overwrite_flag_breaks_ties
            test_conversion_unties_buffers
        """,
        "test_load_assign": """
            test_assign_breaks_ties
            test_assign_with_kept_variables_keeps_ties
        """,
        "test_state_dict": "test_shared_tensors_and_modules_appear_under_every_name",
    },
    BARE: {
        "test_transition_matrix": """
            test_cell
            test_three_assignments_in_a_row
        """,
        "test_registration": "test_a_tensor_or_module_is_no_parameter",
        "test_attributes_writing": "test_none_as_plain_value_and_as_reserved_slot",
    },
    NO_GRADIENT: {
        "test_apply": """
            test_fn_gets_the_gradient_right_after_its_parameter
            test_parameters_are_mapped_without_recording
            test_conversion_keeps_the_gradient_object
            test_replacement_makes_a_new_gradient
            test_overwrite_flag_replaces_the_gradient
            test_swap_mode_swaps_the_gradient
            test_a_parameter_and_its_gradient_are_converted_both_or_neither
            test_swapping_a_gradient_that_two_parameters_hold
        """,
        "test_conversions": """
            test_buffers_that_require_gradients_stay_on_the_graph
            test_no_gradient_comes_back_from_meta
        """,
        "test_copy_pickle": "test_gradients_are_dropped",
        "test_load_assign": """
            test_assign_of_integers_where_gradients_are_wanted
            test_meta_checkpoint_cannot_be_copied
        """,
        "test_load_state_dict": "test_checkpoint_that_requires_gradients",
    },
    CLASSES: {
        "test_containers_parameter": """
            test_list_repr
            test_list_repr_of_one_entry_is_one_line
            test_list_repr_of_a_plain_tensor_and_of_meta
            test_dict_repr
        """,
        "test_hostile_keys": "test_deepcopy_of_something_that_looks_at_the_dict_of_its_owner",
        "test_reentrancy": "test_the_consumer_edits_what_it_walks",
    },
    NAMES: {
        "test_conversions": "test_wrong_arguments_of_to_are_seen_without_leaves",
    },
}

_REASONS = {
    (file, name): reason
    for reason, files in SKIPPED.items()
    for file, names in files.items()
    for name in names.split()
}


def has(kind: str, item: pytest.Item) -> bool:
    """True unless this is the side with jax of a test that does not have one."""
    is_covered = item.path.parent == _MODULE and item.path.stem not in LEFT_OUT
    return is_covered or kind != "modtree-jax"


def choose(items: list[pytest.Item]) -> None:
    """Takes the tests that do not have a side with jax out of the list, and marks those to skip."""
    kept = []
    for item in items:
        kind = getattr(getattr(item, "callspec", None), "params", {}).get("impl")
        if not has(kind, item):
            continue
        kept.append(item)
        reason = _REASONS.get((item.path.stem, getattr(item, "originalname", item.name)))
        if kind == "modtree-jax" and reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    items[:] = kept


_MODULE = Path(__file__).parents[1] / "module"
