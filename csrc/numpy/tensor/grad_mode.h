// SPDX-License-Identifier: BSD-3-Clause
// The thread's switches: whether operations are recorded.
#pragma once

namespace modtree {

bool grad_enabled();
bool set_grad_enabled(bool flag);  // returns the old value

bool inference_mode();
bool set_inference_mode(bool flag);  // returns the old value

}  // namespace modtree
