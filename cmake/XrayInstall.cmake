# What is installed, and the packages made of it.
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
  DESTINATION ${pkgdir} COMPONENT sdk)
configure_file(cmake/xray-sdk.pc.in xray-sdk.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/xray-sdk.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT sdk)
