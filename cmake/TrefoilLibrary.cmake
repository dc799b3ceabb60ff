# trefoil_library(NAME [DEPS ...] [PRIVATE_DEPS ...] [TEST_DEPS ...])
#
# One folder, one library: every *.cpp beside the CMakeLists.txt goes into trefoil_NAME, every *_test.cpp into the test
# program trefoil_NAME_test. DEPS is the layering rule (src/README.md): a folder may include only what it links.
# Files named *_avx2.cpp and *_avx512.cpp are compiled for that instruction set and nothing else is.
function(trefoil_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS;TEST_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  if(tests)
    list(REMOVE_ITEM sources ${tests})
  endif()
  add_library(trefoil_${name} STATIC ${sources})
  target_include_directories(trefoil_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(trefoil_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  foreach(source IN LISTS sources)
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mfma")
    endif()
  endforeach()
  if(TREFOIL_BUILD_TESTS AND tests)
    add_executable(trefoil_${name}_test ${tests})
    target_link_libraries(trefoil_${name}_test PRIVATE trefoil_${name} trefoil_test_support ${ARG_TEST_DEPS} GTest::gmock
                                                       GTest::gtest_main)
    gtest_discover_tests(trefoil_${name}_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS unit)
  endif()
endfunction()
