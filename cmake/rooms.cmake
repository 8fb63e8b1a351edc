# weft_room(NAME DEPENDS rooms... LIBS libraries... [UNITY]): src/NAME becomes the library weft_NAME. Of
# the folders cuda/ and no_cuda/ it takes the one that WEFT_CUDA says.
#
# UNITY: eight files are compiled as one, in 0.53 to 0.61 of the time, since most of it is spent on headers. Names in
# unnamed namespaces must then be unique in the room. Builds that do without the common headers, where a missing
# #include is noticed, do without this too.
if(WEFT_CUDA)
  set(weft_gpu_exclude "/no_cuda/")
else()
  set(weft_gpu_exclude "/cuda/")
endif()
function(weft_room name)
  cmake_parse_arguments(ARG "UNITY" "" "DEPENDS;LIBS;EXCLUDE" ${ARGN})
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
  if(TARGET weft_common_headers)
    target_precompile_headers(weft_${name} REUSE_FROM weft_common_headers)
    if(ARG_UNITY)
      set_target_properties(weft_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    endif()
    # With it g++ 12 forgets that <string> is a system's header, and warns of writes in it that are
    # none; these warnings are on in the builds that do without it.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(weft_${name} PRIVATE
        $<$<COMPILE_LANGUAGE:CXX>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow;-Wno-stringop-overread>)
    endif()
  endif()
endfunction()
