# SPDX-License-Identifier: BSD-3-Clause
# Sanitizers chosen with -DMODTREE_SANITIZE=address,undefined; applied to one named target.
function(modtree_add_sanitizers target)
  if(MODTREE_SANITIZE)
    target_compile_options(${target} INTERFACE -fsanitize=${MODTREE_SANITIZE} -fno-omit-frame-pointer -g)
    target_link_options(${target} INTERFACE -fsanitize=${MODTREE_SANITIZE})
  endif()
endfunction()
