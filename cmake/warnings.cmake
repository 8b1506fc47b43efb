# SPDX-License-Identifier: BSD-3-Clause
# Warnings for our own sources; applied to one named target.
function(modtree_add_warnings target)
  if(MSVC)
    target_compile_options(${target} INTERFACE /W4)
  else()
    target_compile_options(${target} INTERFACE -Wall -Wextra -Wconversion)
    if(MODTREE_WERROR)
      target_compile_options(${target} INTERFACE -Werror)
    endif()
  endif()
endfunction()
