# Warnings for our own code. -ffp-contract=off: a fused multiply-add is used only where the source
# says fma, so that every kernel rounds the same at every optimisation level.
add_library(weft_flags INTERFACE)
target_compile_options(weft_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-ffp-contract=off;-fno-math-errno>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>)
# Errors with the compilers that every commit is built with; newer ones warn of more, and a build
# from source must not fail for that.
set(seen_compilers GNU-12 Clang-14)
string(REGEX MATCH "^[0-9]+" compiler_major "${CMAKE_CXX_COMPILER_VERSION}")
set(is_seen OFF)
if("${CMAKE_CXX_COMPILER_ID}-${compiler_major}" IN_LIST seen_compilers)
  set(is_seen ON)
endif()
option(WEFT_WERROR "warnings are errors" ${is_seen})
if(WEFT_WERROR)
  target_compile_options(weft_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
# clang warns where it could not vectorise a loop that a pragma allows it to: not an error in the
# source.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(weft_flags INTERFACE -Wno-pass-failed)
endif()
target_include_directories(weft_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
