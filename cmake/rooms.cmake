# Most of a file's compile time is spent on headers: the common ones are precompiled, and eight files of a target are
# compiled as one. Names in unnamed namespaces must then be unique in the target (functions may be overloads, by types
# of their own). Builds that do without the common headers, where a missing #include is noticed, do without both.
# Compiled alone: files with flags or definitions of their own, as CMake does by itself; and what some programs
# replace by functions of their own, since a linker takes or leaves a whole object of an archive: stubs for CUDA
# (tests/kernel/emulated_cuda) and the drawing functions (src/cmd/program.cmake).
set(weft_compiled_alone "/cuda/|/no_cuda/|/track/[a-z_]*cairo[a-z_]*[.]cpp$|/track/plot_none[.]cpp$")
function(weft_share_headers target)
  if(NOT TARGET weft_common_headers)
    return()
  endif()
  target_precompile_headers(${target} REUSE_FROM weft_common_headers)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "${weft_compiled_alone}")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  weft_compile_together(${target})
endfunction()

# The tests' programs too, which have a precompiled header of their own (tests/CMakeLists.txt).
function(weft_compile_together target)
  if(NOT TARGET weft_common_headers)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  # With them g++ 12 forgets that <string> is a system's header, and warns of writes in it that are
  # none; and it takes a .cpp file for a header, whose types must not have members of unnamed namespaces.
  # These warnings are on in the builds that do without.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread;-Wno-subobject-linkage>)
  endif()
endfunction()

# weft_room(NAME DEPENDS rooms... LIBS libraries...): src/NAME becomes the library weft_NAME. Of
# the folders cuda/ and no_cuda/ it takes the one that WEFT_CUDA says.
if(WEFT_CUDA)
  set(weft_gpu_exclude "/no_cuda/")
else()
  set(weft_gpu_exclude "/cuda/")
endif()
function(weft_room name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBS;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(WEFT_CUDA)
    file(GLOB_RECURSE gpu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cu)
    list(APPEND sources ${gpu_sources})
  endif()
  foreach(pattern ${ARG_EXCLUDE} ${weft_gpu_exclude})
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(weft_${name} STATIC ${sources})
  target_link_libraries(weft_${name} PRIVATE weft_flags)
  target_include_directories(weft_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  foreach(room ${ARG_DEPENDS})
    if(TARGET weft_${room})
      target_link_libraries(weft_${name} PUBLIC weft_${room})
    endif()
  endforeach()
  target_link_libraries(weft_${name} PRIVATE ${ARG_LIBS})
  if(WEFT_CUDA)
    target_link_libraries(weft_${name} PUBLIC weft_gpu)
  endif()
  weft_share_headers(weft_${name})
endfunction()
