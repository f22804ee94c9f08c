# Suites read their test data from a folder. Without DATA a suite gets the
# material that the tests make themselves (tests/material), and nothing else.
# DATA both: NAME runs on the material, NAME.data on the real data as well.
# DATA only: just NAME.data. A suite that ends in .data has the label "data"; it is
# registered if the real data exists, or if the environment says CI=true.
set(XRAY_HAVE_TEST_DATA OFF)
if(EXISTS "${XRAY_TEST_DATA}/models" OR "$ENV{CI}" STREQUAL "true")
  set(XRAY_HAVE_TEST_DATA ON)
endif()

# xray_test(<name> SOURCES ... [LIBRARIES ...] [LABELS ...] [TIMEOUT s] [DATA ...])
#
# One cmocka suite, one process, one ctest entry. Tests find their data through
# the environment variable XRAY_TEST_DATA and the program through XRAY_BIN.
function(xray_test name)
  cmake_parse_arguments(arg "" "TIMEOUT;DATA" "SOURCES;LIBRARIES;LABELS" ${ARGN})
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
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  string(REPLACE "." "-" target test-${name})
  add_executable(${target} ${arg_SOURCES})
  target_link_libraries(${target} PRIVATE xray-tree ${arg_LIBRARIES} ${XRAY_CMOCKA} m)
  set_target_properties(${target} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  xray_script_test(${name} ${arg_TIMEOUT} "${arg_LABELS}" COMMAND ${target} DATA ${arg_DATA})
endfunction()

# xray_script_test(<name> <timeout> <labels> COMMAND ... [DATA both|only])
function(xray_script_test name timeout labels)
  cmake_parse_arguments(arg "" "DATA" "COMMAND" ${ARGN})
  if(NOT "${arg_DATA}" STREQUAL "only")
    add_test(NAME ${name} COMMAND ${arg_COMMAND})
    xray_test_env(${name} ${timeout} "${labels}")
  endif()
  if(arg_DATA AND XRAY_HAVE_TEST_DATA)
    add_test(NAME ${name}.data COMMAND ${arg_COMMAND})
    xray_test_env(${name}.data ${timeout} "${labels};data")
    set_tests_properties(${name}.data PROPERTIES FIXTURES_REQUIRED ""
      ENVIRONMENT_MODIFICATION "XRAY_TEST_DATA=set:${XRAY_TEST_DATA}")
  endif()
endfunction()

# tests/costs.txt: the longest suites start first, or the last of them runs alone.
file(STRINGS ${PROJECT_SOURCE_DIR}/tests/costs.txt costs REGEX "^[^#]")
foreach(line ${costs})
  string(REPLACE " " ";" line ${line})
  list(GET line 0 name)
  list(GET line 1 XRAY_COST_${name})
endforeach()

# Suites about processes, files, messages and errors, and those of the emulated GPU,
# whose code is not what a GPU runs: they show the same in an optimised build as under
# a sanitizer. There they have the label "once", and ./check leaves them to nightly.
# faults.calls is in no build with a sanitizer, so it stays.
set(XRAY_ONCE "^(ab|actor|alloc|broken|cuda|faults|nccl|reward|tcp|track)\\.|^broken$|^mpi_comm\\.(messages|faults|programs)|^mpi\\.launcher|^comm\\.(cuda|staged)|^rl\\.hosts")

# Environment, limits and labels that every ctest entry of ours has.
function(xray_test_env name timeout labels)
  if(NOT XRAY_SANITIZE AND name MATCHES "${XRAY_ONCE}" AND NOT labels MATCHES "gpu|slow|nightly|style"
      AND NOT name STREQUAL "faults.calls")
    list(APPEND labels once)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${timeout} LABELS "${labels}"
    SKIP_RETURN_CODE 77 FIXTURES_REQUIRED material
    ENVIRONMENT "XRAY_TEST_DATA=${PROJECT_BINARY_DIR}/material;XRAY_BIN=$<TARGET_FILE:xray>;XRAY_SOURCE=${PROJECT_SOURCE_DIR};XRAY_BUILD=${PROJECT_BINARY_DIR};XRAY_SANITIZE=${XRAY_SANITIZE};ASAN_OPTIONS=detect_leaks=1;UBSAN_OPTIONS=print_stacktrace=1")
  # New memory is full of bytes 7f and freed memory of bytes 80, so that what reads either
  # fails here as it would for some user. A driver of GPUs is not ours to disturb.
  if(NOT labels MATCHES "gpu")
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "MALLOC_PERTURB_=128")
  endif()
  if(DEFINED XRAY_COST_${name})
    set_tests_properties(${name} PROPERTIES COST ${XRAY_COST_${name}})
  endif()
endfunction()
