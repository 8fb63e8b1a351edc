# Warnings for our own code. -ffp-contract=off: a fused multiply-add stands where the source says
# fma and nowhere else, so that every kernel rounds alike at every optimisation level.
add_library(weft_flags INTERFACE)
target_compile_options(weft_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Werror;-ffp-contract=off;-fno-math-errno>
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra;-Werror=all-warnings>)
# clang warns where it could not vectorise a loop that a pragma allows it to: no fault of the source.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(weft_flags INTERFACE -Wno-pass-failed)
endif()
target_include_directories(weft_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
