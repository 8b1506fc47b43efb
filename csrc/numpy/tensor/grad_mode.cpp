// SPDX-License-Identifier: BSD-3-Clause
#include "tensor/grad_mode.h"

namespace modtree {

namespace {

thread_local bool t_grad_enabled = true;
thread_local bool t_inference_mode = false;

}  // namespace

bool grad_enabled() { return t_grad_enabled; }

bool set_grad_enabled(bool flag) {
  bool old = t_grad_enabled;
  t_grad_enabled = flag;
  return old;
}

bool inference_mode() { return t_inference_mode; }

bool set_inference_mode(bool flag) {
  bool old = t_inference_mode;
  t_inference_mode = flag;
  return old;
}

}  // namespace modtree
