# SPDX-License-Identifier: BSD-3-Clause
# Enables C++ where a compiler of C++17 is found. Elsewhere it ends with one sentence, before pip's
# report gets long.
macro(modtree_enable_cxx)
  set(modtree_get_compiler
    "install g++ 9, clang 10, Visual Studio 2019 or a later one, or name it in the variable CXX")
  include(CheckLanguage)
  check_language(CXX)
  if(NOT CMAKE_CXX_COMPILER)
    set(modtree_tried "and CMake finds none")
    if(DEFINED ENV{CXX})
      set(modtree_tried "and $ENV{CXX}, which CXX names, compiles no program")
    endif()
    message(FATAL_ERROR
      "modtree needs a C++17 compiler, ${modtree_tried}: ${modtree_get_compiler}.")
  endif()
  enable_language(CXX)

  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS "${CMAKE_CXX17_STANDARD_COMPILE_OPTION}")
  check_cxx_source_compiles([[
    #include <optional>
    #include <string_view>
    #include <utility>
    #include <variant>
    inline constexpr std::string_view kName = "name";
    template <class T> auto size_of(const T &value) {
      if constexpr (sizeof(T) > 1) { return value.size(); } else { return 1; }
    }
    int main() {
      auto [first, second] = std::pair{std::optional<int>(1), std::variant<int, char>(2)};
      return first.value() + std::get<int>(second) + static_cast<int>(size_of(kName)) > 9;
    }]] MODTREE_COMPILES_CXX17)
  unset(CMAKE_REQUIRED_FLAGS)
  if(NOT "cxx_std_17" IN_LIST CMAKE_CXX_COMPILE_FEATURES OR NOT MODTREE_COMPILES_CXX17)
    message(FATAL_ERROR
      "modtree needs a C++17 compiler, and ${CMAKE_CXX_COMPILER} (${CMAKE_CXX_COMPILER_ID} "
      "${CMAKE_CXX_COMPILER_VERSION}) is too old for it: ${modtree_get_compiler}.")
  endif()
endmacro()
