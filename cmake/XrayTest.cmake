# xray_test(<name> SOURCES ... [LIBRARIES ...] [LABELS ...] [TIMEOUT s])
#
# One cmocka suite, one process, one ctest entry. Tests find their data through
# the environment variable XRAY_TEST_DATA and the program through XRAY_BIN.
function(xray_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  if(NOT TARGET xray OR NOT XRAY_CMOCKA)
    return()
  endif()
  foreach(source ${arg_SOURCES})
    if(NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source} AND NOT EXISTS ${source})
      message(WARNING "${name}: ${source} is missing")
      return()
    endif()
  endforeach()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  string(REPLACE "." "-" target test-${name})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE xray-tree ${arg_LIBRARIES} ${XRAY_CMOCKA} m)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${target})
  xray_test_env(${name} ${arg_TIMEOUT} "${arg_LABELS}")
endfunction()

# Environment, limits and labels that every ctest entry of ours has.
function(xray_test_env name timeout labels)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}"
    SKIP_RETURN_CODE 77
    ENVIRONMENT "XRAY_TEST_DATA=${XRAY_TEST_DATA};XRAY_BIN=$<TARGET_FILE:xray>;XRAY_SOURCE=${PROJECT_SOURCE_DIR};XRAY_BUILD=${PROJECT_BINARY_DIR};ASAN_OPTIONS=detect_leaks=1;UBSAN_OPTIONS=print_stacktrace=1")
endfunction()
