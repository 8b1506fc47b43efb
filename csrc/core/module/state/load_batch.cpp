// SPDX-License-Identifier: BSD-3-Clause
#include "module/state/load_batch.h"

#include <utility>

#include "module/walk/pointer_set.h"
#include "python/owned.h"
#include "python/prefetch.h"

namespace modtree {

namespace {

// Copies made by one call of a tensor library; larger batches gain nothing more.
constexpr std::size_t kLargestBatch = 128;

// Steps from which on looking ahead is worth it, and how much of a tensor is brought near.
constexpr std::size_t kSmallPlan = 1024;
constexpr std::size_t kTensorHead = 96;

}  // namespace

std::size_t batch_from(const LoadPlan &plan, std::size_t number) {
  const LoadPlan::Step &first = plan.steps[number];
  TensorFamily *family = first.family;
  if (!family || !family->copies_in_batches(first.tensor, first.source)) {
    return 0;
  }
  PointerSet tensors;
  std::size_t count = 0;
  while (count < kLargestBatch && number + count < plan.steps.size()) {
    const LoadPlan::Step &step = plan.steps[number + count];
    if (const std::size_t far = number + count + 12; far < plan.steps.size()) {
      prefetch(plan.steps[far].tensor);
      prefetch(plan.steps[far].source);
    }
    if (step.kind != LoadPlan::Kind::entry || step.family != family ||
        !family->copies_in_batches(step.tensor, step.source) || !tensors.insert(step.tensor)) {
      break;
    }
    ++count;
  }
  return count;
}

int copy_batch(const LoadPlan &plan, std::size_t number, std::size_t count) {
  const auto size = static_cast<Py_ssize_t>(count);
  const Owned tensors = steal(PyList_New(size));
  const Owned sources = tensors ? steal(PyList_New(size)) : Owned();
  if (!sources) {
    return -1;
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    const LoadPlan::Step &step = plan.steps[number + static_cast<std::size_t>(i)];
    // In a large tree nothing that the first pass has read is in the caches any more.
    step.family->prefetch(step.tensor);
    step.family->prefetch(step.source);
    PyList_SET_ITEM(tensors.ptr(), i, Py_NewRef(step.tensor));
    PyList_SET_ITEM(sources.ptr(), i, Py_NewRef(step.source));
  }
  return plan.steps[number].family->copy_all(tensors.ptr(), sources.ptr());
}

void look_ahead(const LoadPlan &plan, std::size_t number) {
  if (plan.steps.size() < kSmallPlan) {
    return;
  }
  // The steps own their tensors until they are done.
  const auto at = [&](std::size_t places) -> const LoadPlan::Step * {
    return number + places < plan.steps.size() ? &plan.steps[number + places] : nullptr;
  };
  if (const LoadPlan::Step *step = at(12); step && step->tensor) {
    prefetch_head(step->tensor, kTensorHead);
    prefetch_head(step->source, kTensorHead);
  }
  if (const LoadPlan::Step *step = at(8); step && step->family) {
    step->family->prefetch(step->tensor);
    step->family->prefetch(step->source);
  }
  if (const LoadPlan::Step *step = at(4); step && step->family) {
    step->family->prefetch_values(step->tensor);
    step->family->prefetch_values(step->source);
  }
}

void let_go(LoadPlan &plan, std::size_t number, std::size_t count) {
  for (std::size_t i = number; i < number + count; ++i) {
    const Owned tensor = steal(std::exchange(plan.steps[i].tensor, nullptr));
    const Owned source = steal(std::exchange(plan.steps[i].source, nullptr));
  }
}

bool copy_memory_of(RunningPlan *running, SignalCheck *signals) {
  LoadPlan &plan = *running->plan;
  const std::size_t begin = running->next, end = running->known_until();
  while (running->next < end && !signals->is_spent()) {
    const LoadPlan::Step &step = plan.steps[running->next];
    if (step.kind != LoadPlan::Kind::entry ||
        !step.family->copy_quickly(step.tensor, step.source)) {
      break;
    }
    look_ahead(plan, running->next);
    let_go(plan, running->next++, 1);
    signals->spend(1);
  }
  return running->next != begin;
}

}  // namespace modtree
