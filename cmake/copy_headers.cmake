# SPDX-License-Identifier: BSD-3-Clause
# Makes `to` a copy of the headers under `from`, and writes only what differs: the same headers from
# another folder (pip makes a new one for every build) leave all time stamps, and so all objects, valid.
function(modtree_copy_headers from to)
  file(GLOB_RECURSE headers RELATIVE "${from}" "${from}/*.h")
  if(NOT headers)
    message(FATAL_ERROR "There are no headers in '${from}'")
  endif()
  file(GLOB_RECURSE gone RELATIVE "${to}" "${to}/*")
  list(REMOVE_ITEM gone ${headers})
  list(TRANSFORM gone PREPEND "${to}/")
  file(REMOVE ${gone})
  foreach(header IN LISTS headers)
    get_filename_component(folder "${to}/${header}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    file(COPY_FILE "${from}/${header}" "${to}/${header}" ONLY_IF_DIFFERENT)
  endforeach()
  # Another version put in the same place is to be copied by the next build.
  list(TRANSFORM headers PREPEND "${from}/")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
endfunction()
