# xray_add_plugin(<name> SOURCES ... [CUDA_SOURCES ...] [LIBRARIES ...])
#
# Builds <name>.so, a module that exports xray_plugin_query and nothing else,
# installs it where xray looks, and adds the test conformance.<name>. Used the
# same way inside the xray tree and outside it, after find_package(xray).
# LIBRARIES of our own are archives: their symbols stay hidden in the module.
# <name> as a C identifier is what XRAY_PLUGIN_DEFINE names first. Sources are C,
# C++ or both, of a project() that enables what they are.

include(GNUInstallDirs)
set(XRAY_PLUGIN_DIR ${CMAKE_INSTALL_LIBDIR}/xray/plugins)

function(xray_add_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;CUDA_SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "xray_add_plugin(${name}): SOURCES is empty")
  endif()
  string(MAKE_C_IDENTIFIER ${name} ident)

  # CMake drops sources of languages that are not enabled, without a word.
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(cxx ${arg_SOURCES})
  list(FILTER cxx INCLUDE REGEX "\\.(C|cc|cpp|cxx|c\\+\\+)$")
  set(c ${arg_SOURCES})
  list(FILTER c INCLUDE REGEX "\\.c$")
  if(c AND NOT "C" IN_LIST languages)
    message(FATAL_ERROR "xray_add_plugin(${name}): ${c}: project() enables no C")
  elseif(cxx AND NOT "CXX" IN_LIST languages)
    message(FATAL_ERROR "xray_add_plugin(${name}): ${cxx}: project() enables no C++ (CXX)")
  elseif("C" IN_LIST languages)
    set(suffix c)
  elseif("CXX" IN_LIST languages)
    set(suffix cpp)
  else()
    message(FATAL_ERROR "xray_add_plugin(${name}): project() enables neither C nor C++ (CXX)")
  endif()

  # One set of objects serves the module and unit tests.
  add_library(${name}-objects OBJECT ${arg_SOURCES} ${arg_CUDA_SOURCES})
  set_target_properties(${name}-objects PROPERTIES
    POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    CUDA_VISIBILITY_PRESET hidden)
  target_link_libraries(${name}-objects PUBLIC xray::sdk ${arg_LIBRARIES})
  if(TARGET xray-build)
    target_link_libraries(${name}-objects PRIVATE xray-build)
  endif()

  # The exported name is added only to the module.
  set(entry ${CMAKE_CURRENT_BINARY_DIR}/${name}-entry.${suffix})
  file(CONFIGURE OUTPUT ${entry} @ONLY CONTENT [[
#include <xray/plugin.h>
XRAY_PLUGIN_ENTRY(@ident@)
]])
  set(map ${CMAKE_CURRENT_BINARY_DIR}/${name}.map)
  file(CONFIGURE OUTPUT ${map} CONTENT
    "{ global: xray_plugin_query; local: *; };\n")

  add_library(${name} MODULE ${entry})
  target_link_libraries(${name} PRIVATE ${name}-objects)
  set_target_properties(${name} PROPERTIES PREFIX "" LINK_DEPENDS ${map})
  if(cxx)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
  if(XRAY_MODULE_DIR)
    set_target_properties(${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${XRAY_MODULE_DIR})
  endif()
  if(arg_CUDA_SOURCES)
    # The CUDA runtime is linked in, so that a machine without the toolkit can
    # load and list the module. Kernels are C-like: C links them.
    set_target_properties(${name} ${name}-objects PROPERTIES
      CUDA_RUNTIME_LIBRARY Static)
    set_target_properties(${name} PROPERTIES LINKER_LANGUAGE C)
    target_link_options(${name} PRIVATE LINKER:--as-needed)
  endif()
  target_link_options(${name} PRIVATE "LINKER:--version-script=${map}"
    LINKER:-z,now LINKER:-z,relro LINKER:-z,nodelete)
  if(NOT XRAY_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
  install(TARGETS ${name} LIBRARY DESTINATION ${XRAY_PLUGIN_DIR}
    COMPONENT plugins)

  add_test(NAME conformance.${name} COMMAND ${CMAKE_COMMAND}
    -DXRAY=${XRAY_EXECUTABLE} -DPLUGIN=$<TARGET_FILE:${name}>
    -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/XrayConformance.cmake)
  set_tests_properties(conformance.${name} PROPERTIES LABELS conformance)
endfunction()

if(NOT XRAY_EXECUTABLE)
  set(XRAY_EXECUTABLE $<TARGET_FILE:xray>) # inside the tree
  set(XRAY_MODULE_DIR ${PROJECT_BINARY_DIR}/plugins) # where it looks for modules
endif()
