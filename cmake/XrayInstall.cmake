# The files that are installed, and the packages made of them.
set(pkgdir ${CMAKE_INSTALL_LIBDIR}/cmake/xray)
install(TARGETS xray COMPONENT runtime)
install(TARGETS xray-sdk EXPORT xray-targets)
install(DIRECTORY include/xray DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk)
install(EXPORT xray-targets NAMESPACE xray:: DESTINATION ${pkgdir} COMPONENT sdk)
configure_package_config_file(cmake/xray-config.cmake.in xray-config.cmake
  INSTALL_DESTINATION ${pkgdir}
  PATH_VARS CMAKE_INSTALL_BINDIR)
# Major 0 is a draft ABI: a plugin is built against the very minor.
write_basic_package_version_file(xray-config-version.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/xray-config.cmake
  ${PROJECT_BINARY_DIR}/xray-config-version.cmake cmake/XrayPlugin.cmake
  cmake/XrayConformance.cmake
  DESTINATION ${pkgdir} COMPONENT sdk)
# Paths hang on the file's own folder, so that `cmake --install --prefix` may put
# all of it elsewhere; absolute ones, which a packager chose, stay.
set(XRAY_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH up /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(XRAY_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(pair INCLUDEDIR:${CMAKE_INSTALL_INCLUDEDIR} PLUGINDIR:${XRAY_PLUGIN_DIR})
  string(REGEX MATCH "^([^:]*):(.*)$" pair ${pair})
  set(XRAY_PC_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  if(NOT IS_ABSOLUTE "${CMAKE_MATCH_2}")
    set(XRAY_PC_${CMAKE_MATCH_1} "\${prefix}/${CMAKE_MATCH_2}")
  endif()
endforeach()
configure_file(cmake/xray-sdk.pc.in xray-sdk.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/xray-sdk.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT sdk)
# Documentation and examples.
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc
  PATTERN CMakeLists.txt EXCLUDE PATTERN task.c EXCLUDE)
install(DIRECTORY tests/out-of-tree/project/ COMPONENT doc
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples/plugins)
