// SPDX-License-Identifier: BSD-3-Clause
#include "module/methods.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "module/class_info.h"
#include "module/error_note.h"
#include "module/state/checkpoint_metadata.h"
#include "module/state/load_batch.h"
#include "module/state/load_findings.h"
#include "module/state/load_module.h"
#include "module/state/load_plan.h"
#include "module/state/replaced_tensors.h"
#include "module/state/running_plan.h"
#include "module/state/state_path.h"
#include "python/arguments.h"
#include "python/context_variable.h"
#include "python/installed.h"
#include "python/owned.h"
#include "python/signals.h"
#include "python/slot_guard.h"
#include "python/type_text.h"

namespace modtree {

namespace {

class Loader {
public:
  Loader(bool strict, LoadMode mode)
      : strict_(strict),
        mode_(mode),
        copies_(!mode.assign && !mode.swap) {}

  // The result of load_state_dict: new reference, null on error.
  PyObject *run(PyObject *root, PyObject *state_dict) {
    LoadRegion region;
    if (findings_.start() < 0 || metadata_.start(state_dict) < 0 ||
        set_dict(&region, state_dict) < 0) {
      return nullptr;
    }
    if (loads_through_python(root)) {
      if (load_root_through_python(root, region) < 0) {
        return nullptr;
      }
    } else if (push_plan(std::move(region), root, names.empty, RootEntries::planned) < 0) {
      return nullptr;
    }
    if (work() < 0 || no_grad_.exit() < 0 || write_what_was_held_back() < 0) {
      if (failed_) {
        note_failure(root, failed_.ptr(), "load_state_dict");
      }
      return nullptr;
    }
    if (replaced_->settle(root) < 0 || raise_held_error() < 0 ||
        (findings_.fail(strict_) && findings_.raise(root, state_dict, strict_) < 0)) {
      return nullptr;
    }
    return findings_.result(root);
  }

private:
  static int set_dict(LoadRegion *region, PyObject *state_dict) {
    PyObject *type = need_installed(installed.StateDict);
    if (!type) {
      return -1;
    }
    if (PyDict_CheckExact(state_dict) || PyODict_CheckExact(state_dict) ||
        reinterpret_cast<PyObject *>(Py_TYPE(state_dict)) == type) {
      region->dict = borrow(state_dict);
      return 0;
    }
    region->dict = steal(copy_of(state_dict));
    return region->dict ? 0 : -1;
  }

  // OrderedDict(state_dict)
  static PyObject *copy_of(PyObject *state_dict) {
    return PyObject_CallOneArg(reinterpret_cast<PyObject *>(&PyODict_Type), state_dict);
  }

  int load_root_through_python(PyObject *root, const LoadRegion &region) {
    LoadRegion own;
    own.dict = steal(PyErr_Occurred() ? nullptr : copy_of(region.dict.ptr()));
    PyObject *metadata = own.dict ? metadata_.get() : nullptr;
    if (!own.dict || (!metadata && PyErr_Occurred()) ||
        (metadata && PyObject_SetAttr(own.dict.ptr(), names.metadata, metadata) < 0)) {
      return -1;
    }
    return load_through_python(root, names.empty, std::move(own), false);
  }

  // `split`: see LoadPlanOptions.
  int push_plan(LoadRegion region, PyObject *root, PyObject *prefix, RootEntries root_entries,
                bool split = false) {
    auto plan = std::make_shared<LoadPlan>(prefix);
    if (build(region, root, root_entries, split, plan.get()) < 0) {
      return -1;
    }
    if (!split && plan->may_change && !doomed_ && !fails(*plan, false)) {
      // All that is wrong, if anything, may be put right by a set_extra_state: it has to run before
      // what is below it is planned.
      const int sets = root_entries == RootEntries::planned
                           ? sets_extra_state(root, prefix, region.dict.ptr())
                           : 0;
      if (sets != 0) {
        return sets < 0 ? -1 : load_through_python(root, prefix, std::move(region), true);
      }
      plan = std::make_shared<LoadPlan>(prefix);
      if (build(region, root, root_entries, true, plan.get()) < 0) {
        return -1;
      }
    }
    has_post_hooks_ = has_post_hooks_ || plan->has_post_hooks;
    doomed_ = doomed_ || fails(*plan, true);
    for (const Owned &key : plan->meta_keys) {
      if (warn_of_meta_copy(key.ptr()) < 0) {
        return -1;
      }
    }
    running_.emplace_back(std::move(region), std::move(plan), root_entries, python_runs_);
    return 0;
  }

  int build(LoadRegion &region, PyObject *root, RootEntries root_entries, bool split,
            LoadPlan *plan) {
    LoadPlanOptions options;
    options.mode = mode_;
    options.bad_metadata = metadata_.bad_entries();
    options.split = split;
    return build_load_plan(region, root, root_entries != RootEntries::planned, options, plan);
  }

  // True if what the plan reports will make the load fail. A hook may still clear the lists of
  // keys; nothing takes an error back.
  bool fails(const LoadPlan &plan, bool count_provisional) const {
    const auto has_any = [&](const std::vector<LoadPlan::Report> &reports) {
      return std::any_of(reports.begin(), reports.end(), [&](const LoadPlan::Report &report) {
        return count_provisional || !report.provisional;
      });
    };
    const bool keys_count = strict_ && !has_post_hooks_ && !plan.has_post_hooks;
    return has_any(plan.errors) ||
           (keys_count && (has_any(plan.missing) || has_any(plan.unexpected)));
  }

  // Between two steps. A handler's error ends the load where nothing has been written yet; later it
  // waits until the native modules have all that is theirs.
  int look_at_signals() {
    if (signals_.look() == 0 || hold_error()) {
      return 0;
    }
    if (held_error_) {
      PyErr_Clear();  // another one is not needed
      return 0;
    }
    return -1;
  }

  // Keeps the error that is set for later. False where that is not to be.
  bool hold_error() {
    if (!has_written_ || held_error_) {
      return false;
    }
    held_error_.emplace();
    return true;
  }

  // To be called before Python code, and at the end.
  int raise_held_error() {
    if (!held_error_) {
      return 0;
    }
    held_error_->restore();
    return -1;
  }

  // Writes something into native modules; once more where a handler of a signal raises an error in
  // the middle, as that may be half done.
  template <class Write>
  int write_whole(Write write) {
    has_written_ = true;
    const int written = write();
    return written < 0 && !PyErr_ExceptionMatches(PyExc_Exception) && hold_error() ? write()
                                                                                   : written;
  }

  int work() {
    while (!running_.empty()) {
      if (signals_.is_due() && look_at_signals() < 0) {
        return -1;
      }
      RunningPlan &top = running_.back();
      if (top.python_runs != python_runs_) {
        ChangedModule changed;
        const int found = top.find_change(findings_, &changed);
        if (found < 0 || (found > 0 && load_changed(changed) < 0)) {
          return -1;
        }
        if (found > 0) {
          continue;
        }
      }
      if (top.next == top.plan->steps.size()) {
        if (finish_plan() < 0) {
          return -1;
        }
        continue;
      }
      if (copies_ && !doomed_ && copy_memory_of(&top, &signals_)) {
        has_written_ = true;
        continue;
      }
      const std::shared_ptr<LoadPlan> plan = top.plan;
      const std::size_t number = top.next++;
      if (do_step(plan, number) < 0) {
        return -1;
      }
    }
    return 0;
  }

  int finish_plan() {
    if (report_until(running_.back().plan->steps.size()) < 0) {
      return -1;
    }
    const RunningPlan done = std::move(running_.back());
    running_.pop_back();
    if (done.root_entries != RootEntries::done) {
      return 0;
    }
    PyObject *module = done.plan->visits[0].module;
    on_path_.erase(module);
    return run_post_hooks(module);
  }

  int do_step(const std::shared_ptr<LoadPlan> &plan, std::size_t number) {
    const LoadPlan::Step &step = plan->steps[number];
    switch (step.kind) {
      case LoadPlan::Kind::entry:
      case LoadPlan::Kind::extra_state:
        if (doomed_) {
          held_back_.emplace_back(plan, number);
          return 0;
        }
        return write_from(*plan, number);
      case LoadPlan::Kind::post_hooks:
        return raise_held_error() < 0 || report_until(number) < 0
                   ? -1
                   : run_post_hooks(plan->visits[step.visit].module);
      case LoadPlan::Kind::python:
        break;
    }
    if (raise_held_error() < 0 || report_until(number) < 0) {
      return -1;
    }
    const LoadPlan::Visit &visit = plan->visits[step.visit];
    LoadRegion own = region_at(visit.node);
    const Owned prefix = own.dict ? plan->prefix_of(step.visit) : Owned();
    if (!prefix) {
      return -1;
    }
    const bool has_python = loads_through_python(visit.module);
    if (!has_python && doomed_) {
      // Here for its set_extra_state alone, which is not called any more: what is wrong below is
      // still to be reported.
      return push_plan(std::move(own), visit.module, prefix.ptr(), RootEntries::planned);
    }
    return load_through_python(visit.module, prefix.ptr(), std::move(own), !has_python);
  }

  // A part of the top plan's region, without a dict on error.
  LoadRegion region_at(KeyIndex::NodeId node) const {
    const LoadRegion &region = running_.back().region;
    LoadRegion part;
    part.index = region.index;
    part.node = node;
    part.dict = steal(region.index->dict_of(node));
    return part;
  }

  // Loads what replaces a module of the top plan, which skips it.
  int load_changed(const ChangedModule &changed) {
    LoadRegion own = region_at(changed.node);
    if (!own.dict) {
      return -1;
    }
    PyObject *module = changed.module.ptr(), *prefix = changed.prefix.ptr();
    return loads_through_python(module)
               ? load_through_python(module, prefix, std::move(own), false)
               : push_plan(std::move(own), module, prefix, RootEntries::planned);
  }

  // A batch of entries, one entry or an extra state.
  int write_from(LoadPlan &plan, std::size_t number) {
    const std::size_t known = running_.back().known_until() - number;
    if (const std::size_t count = copies_ ? std::min(batch_from(plan, number), known) : 0;
        count > 1) {
      running_.back().next = number + count;
      if (write_whole([&] { return write_batch(plan, number, count); }) < 0) {
        return -1;
      }
      let_go(plan, number, count);
      return 0;
    }
    look_ahead(plan, number);
    if (plan.steps[number].kind == LoadPlan::Kind::extra_state) {
      return raise_held_error() < 0 || write(plan, number) < 0 ? -1
                                                               : load_new_children(plan, number);
    }
    if (write_whole([&] { return write(plan, number); }) < 0) {
      return -1;
    }
    let_go(plan, number, 1);
    return 0;
  }

  // After the extra state of a module that had no children: those it has made.
  int load_new_children(const LoadPlan &plan, std::size_t number) {
    const LoadPlan::Step &step = plan.steps[number];
    const LoadPlan::Visit &visit = plan.visits[step.visit];
    const bool had_children =
        step.visit + 1 < plan.visits.size() && plan.visits[step.visit + 1].parent == step.visit;
    if (step.kind != LoadPlan::Kind::extra_state || had_children ||
        !may_have_entries(as_module(visit.module), Slot::modules)) {
      return 0;
    }
    const Owned prefix = plan.prefix_of(step.visit);
    if (!prefix || report_until(number) < 0) {
      return -1;
    }
    LoadRegion own;
    own.dict = running_.back().region.dict;
    return push_plan(std::move(own), visit.module, prefix.ptr(), RootEntries::elsewhere);
  }

  // Copies that many entries at once, or one by one where that fails, so that the errors name their
  // keys.
  int write_batch(const LoadPlan &plan, std::size_t number, std::size_t count) {
    if (no_grad_.enter(plan.steps[number].family) < 0) {
      return -1;
    }
    const int copied = copy_batch(plan, number, count);
    if (copied < 0 && !PyErr_ExceptionMatches(PyExc_Exception)) {
      return -1;
    }
    PyErr_Clear();
    for (std::size_t i = number; copied <= 0 && i < number + count; ++i) {
      if (write(plan, i) < 0) {
        return -1;
      }
    }
    return 0;
  }

  // Stores one entry or extra state. Also called at the end, for what was held back.
  int write(const LoadPlan &plan, std::size_t number) {
    const LoadPlan::Step &step = plan.steps[number];
    PyObject *module = plan.visits[step.visit].module;
    if (step.kind == LoadPlan::Kind::extra_state) {
      if (begin_python() < 0) {
        return -1;
      }
      const Owned ignored =
          steal(PyObject_CallMethodOneArg(module, names.set_extra_state, step.source));
      return ignored ? 0 : fail_at(module);
    }
    if (no_grad_.enter(step.family) < 0 || (step.family->is_immutable() && be_found() < 0)) {
      return -1;
    }
    LoadEntry entry{module, step.name, nullptr, step.tensor, step.family};
    if (try_to_store(entry, mode_, step.source) == 0) {
      return 0;
    }
    Owned exception;
    if (!take_failure(&exception)) {
      return -1;
    }
    const Owned key = plan.key_of(step);
    entry.key = key.ptr();
    const Owned message =
        key ? steal(failure_message(entry, mode_, step.source, exception)) : Owned();
    return !message || (!running_.empty() && report_until(number) < 0)
               ? -1
               : PyList_Append(findings_.errors(), message.ptr());
  }

  int report_until(std::size_t step) { return running_.back().report_until(step, findings_); }

  // A module with Python code: steps 1 to 3 of torch's load, then its children are planned. `own`
  // has the dict that the code gets. `split` is for that plan.
  int load_through_python(PyObject *module, PyObject *prefix, LoadRegion own, bool split) {
    const Owned held_module = borrow(module), held_prefix = borrow(prefix);
    if (begin_python() < 0) {
      return -1;
    }
    if (!on_path_.insert(module).second) {
      PyErr_Format(PyExc_RecursionError,
                   "load_state_dict: the module tree has a cycle: the %.100s at '%U' contains "
                   "itself; keep one of the references "
                   "outside the tree, for example in a tuple",
                   type_short_name(Py_TYPE(module)), prefix);
      return -1;
    }
    const Owned local = steal(metadata_.local(prefix, mode_.assign));
    const LoadLists lists{findings_.missing(), findings_.unexpected(), findings_.errors()};
    if (!local) {
      return -1;
    }
    const ClassInfo info = class_info_of(module);
    if (info.is_module() && !overrides(as_module(module), info, Virtual::load_from_state_dict)) {
      if (load_own(module, own.dict.ptr(), prefix, local.ptr(), Py_True, lists) < 0) {
        return fail_at(module);
      }
    } else {
      PyObject *arguments[] = {module,  own.dict.ptr(), prefix,           local.ptr(),
                               Py_True, lists.missing,  lists.unexpected, lists.errors};
      const Owned ignored = steal(PyObject_VectorcallMethod(
          names.load_from_state_dict, arguments, 8 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
      if (!ignored) {
        return fail_at(module);
      }
    }
    const Owned children = steal(mapping_of(module, Slot::modules));
    const Owned hooks =
        !PyErr_Occurred() ? steal(mapping_of(module, Slot::load_state_dict_post_hooks)) : Owned();
    if (PyErr_Occurred()) {
      return -1;
    }
    has_post_hooks_ = has_post_hooks_ || may_give_entries(hooks.ptr());
    if (!may_give_entries(children.ptr())) {
      on_path_.erase(module);
      return run_post_hooks(module);
    }
    if (own.index && !own.index->same_entries(own.node, own.dict.ptr())) {
      own.index.reset();
    }
    return push_plan(std::move(own), module, prefix, RootEntries::done, split);
  }

  // Where Python code of a module has raised. -1.
  int fail_at(PyObject *module) {
    failed_ = borrow(module);
    return -1;
  }

  // Before Python code runs, which may change the tree, and load parts of it itself.
  int begin_python() {
    ++python_runs_;
    return PyErr_Occurred() || no_grad_.exit() < 0 ? -1 : be_found();
  }

  // From now on replace_entry() finds what this load has replaced.
  int be_found() {
    if (!at_work_) {
      at_work_.emplace(replaced_.get());
      if (!at_work_->entered()) {
        at_work_.reset();
        return -1;
      }
    }
    return 0;
  }

  // New reference to a registry, or null: without an error when it is empty.
  static PyObject *mapping_of(PyObject *module, Slot slot) {
    if (!class_info_of(module).is_module()) {
      return PyObject_GetAttr(module, slot_name(slot));
    }
    PyObject *mapping;
    Owned keep;
    return registry(as_module(module), slot, &mapping, &keep) < 0 ? nullptr : Py_XNewRef(mapping);
  }

  int run_post_hooks(PyObject *module) {
    const Owned hooks = steal(mapping_of(module, Slot::load_state_dict_post_hooks));
    if (!hooks) {
      return PyErr_Occurred() ? -1 : 0;
    }
    if (!may_give_entries(hooks.ptr())) {
      return 0;
    }
    const Owned keys = begin_python() < 0 ? Owned() : steal(findings_.incompatible_keys());
    RegistryItems items;
    if (!keys || items.start(hooks.ptr(), AskFor::values) < 0) {
      return -1;
    }
    PyObject *key, *hook;
    int more;
    while ((more = items.next(&key, &hook)) > 0) {
      const Owned held_hook = borrow(hook);
      PyObject *arguments[] = {nullptr, module, keys.ptr()};
      const Owned answer = steal(
          PyObject_Vectorcall(hook, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
      if (!answer) {
        return fail_at(module);
      }
      if (!answer.is_none()) {
        const std::string type = type_text(answer.ptr());
        PyErr_Format(PyExc_AssertionError,
                     "a hook of register_load_state_dict_post_hook must not return a value (%R "
                     "returned a %.100s): to change the "
                     "incompatible keys, it should be done inplace.",
                     hook, type.c_str());
        return -1;
      }
    }
    return more;
  }

  // Python code has cleared the lists that made the load fail: it counts as good, so everything is
  // written.
  int write_what_was_held_back() {
    if (held_back_.empty() || findings_.fail(strict_)) {
      return 0;
    }
    for (const auto &held : held_back_) {
      if (signals_.step() < 0 || write(*held.first, held.second) < 0) {
        return -1;
      }
    }
    return no_grad_.exit();
  }

  const bool strict_;
  const LoadMode mode_;
  const bool copies_;  // values, from the checkpoint's tensors into those of the modules
  const std::unique_ptr<ReplacedTensors> replaced_ = std::make_unique<ReplacedTensors>();
  std::optional<AtWork<ReplacedTensors>> at_work_;
  CheckpointMetadata metadata_;
  LoadFindings findings_;
  std::vector<RunningPlan> running_;
  std::size_t python_runs_ = 0;  // how often Python code has run, which may change the tree
  std::unordered_set<PyObject *>
      on_path_;  // modules with Python code whose children are being loaded
  NoGradScopes no_grad_;
  Owned failed_;
  // The load will raise: native entries are held back, to be written only if Python code makes the
  // load good after all.
  bool doomed_ = false;
  bool has_post_hooks_ = false;
  SignalCheck signals_;
  bool has_written_ = false;  // or has begun to
  std::optional<py::error_already_set> held_error_;
  std::vector<std::pair<std::shared_ptr<LoadPlan>, std::size_t>> held_back_;
};

}  // namespace

PyObject *module_load_state_dict(PyObject *self_obj, PyObject *const *args, Py_ssize_t count,
                                 PyObject *keywords) {
  return slot_guard<PyObject *>(nullptr, [&]() -> PyObject * {
    static const ArgumentNames names_of = {
        "load_state_dict",
        {"state_dict", "strict", "assign", "rename", "partial", "dry_run"},
        1,
        3};
    PyObject *values[kMaxArguments] = {};
    if (parse_arguments(names_of, args, count, keywords, values) < 0) {
      return nullptr;
    }
    PyObject *state_dict = values[0];
    const int good = is_mapping(state_dict);
    if (good <= 0) {
      if (good == 0) {
        refuse_given(self_obj, state_dict);
      }
      return nullptr;
    }
    int strict = 1, assign = 0, partial = 0, dry_run = 0;
    if (truths_or(values[1], &strict, values[2], &assign) < 0 ||
        truths_or(values[4], &partial, values[5], &dry_run) < 0) {
      return nullptr;
    }
    PyObject *rename = values[3] ? values[3] : Py_None;
    if (rename != Py_None || partial || dry_run) {
      const auto truth = [](int flag) { return flag ? Py_True : Py_False; };
      return call_installed(installed.load_with_options, self_obj, state_dict, truth(strict),
                            truth(assign), rename, truth(partial), truth(dry_run))
          .release()
          .ptr();
    }
    const int swap = switch_anywhere(ConversionSwitch::swap);
    if (swap < 0) {
      return nullptr;
    }
    return Loader(strict != 0, LoadMode{assign != 0, swap != 0}).run(self_obj, state_dict);
  });
}

}  // namespace modtree
