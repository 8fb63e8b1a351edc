# The kernel room. Files of cpu/level/ are compiled once for every instruction level of the target,
# each time with that level's flags and its own namespace, WEFT_LEVEL; which one runs is decided at
# program start. Code shared between levels must be inlined by force or have internal linkage, or
# the linker could mix one level's instructions into another.
#
# A level with a base (weft_base_<level>) adds instructions that only matrix products use: of its own
# are gemm.cpp and table.cpp, whose table takes all other kernels from the base.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(weft_levels avx2 avx512 avx512_bf16 amx)
  set(weft_flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(weft_flags_avx512 ${weft_flags_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
  set(weft_flags_avx512_bf16 ${weft_flags_avx512} -mavx512bf16)
  set(weft_flags_amx ${weft_flags_avx512_bf16} -mamx-tile -mamx-bf16)
  set(weft_base_avx512_bf16 avx512)
  set(weft_base_amx avx512)
  # A build with sanitizers is slow to make, and runs only where it was made: it does without the levels
  # that this processor does not have.
  if(WEFT_SANITIZE AND EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo weft_cpu_flags REGEX "^flags" LIMIT_COUNT 1)
    if(NOT weft_cpu_flags MATCHES " avx512_bf16( |$)")
      list(REMOVE_ITEM weft_levels avx512_bf16 amx)
    elseif(NOT weft_cpu_flags MATCHES " amx_bf16( |$)")
      list(REMOVE_ITEM weft_levels amx)
    endif()
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(weft_levels neon neon_bf16)
  set(weft_flags_neon -march=armv8-a)
  set(weft_flags_neon_bf16 -march=armv8.2-a+bf16)
else()
  message(FATAL_ERROR "weft has kernels for x86_64 and aarch64, not for ${CMAKE_SYSTEM_PROCESSOR}")
endif()

if(WEFT_CUDA AND WEFT_CUDNN)
  set(weft_cudnn_exclude "/attention_no_cudnn[.]cpp$")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/cuda/cudnn_library.cpp PROPERTIES
    COMPILE_OPTIONS "-isystem${WEFT_CUDNN_HEADERS}")
  # Host code that runs once when a pass is captured: half of its compile time is due to -O2. Without it the
  # precompiled headers do not serve.
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/cuda/attention_graph.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-O0;-isystem${WEFT_CUDNN_FRONTEND};-isystem${WEFT_CUDNN_HEADERS}")
else()
  set(weft_cudnn_exclude "/(attention_cudnn|attention_graph|cudnn_library)[.]cpp$")
endif()
weft_room(kernel DEPENDS tensor EXCLUDE "/kernel/cpu/level/" ${weft_cudnn_exclude})
if(WEFT_CUDA)  # cuBLASLt and cuDNN are loaded on first use (cuda/lt_library.cpp, cuda/cudnn_library.cpp)
  target_link_libraries(weft_kernel PRIVATE ${CMAKE_DL_LIBS})
endif()
file(GLOB level_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/cpu/level/*.cpp)
if(NOT TARGET weft_kernel OR NOT level_sources)
  return()
endif()
foreach(level ${weft_levels})
  set(sources ${level_sources})
  if(weft_base_${level})
    list(FILTER sources INCLUDE REGEX "/(gemm|table)[.]cpp$")
  endif()
  add_library(weft_kernel_${level} OBJECT ${sources})
  target_link_libraries(weft_kernel_${level} PRIVATE weft_flags weft_tensor)
  target_compile_options(weft_kernel_${level} PRIVATE ${weft_flags_${level}})
  target_compile_definitions(weft_kernel_${level} PRIVATE WEFT_LEVEL=${level} WEFT_LEVEL_NAME="${level}" WEFT_LEVEL_${level}=1)
  if(weft_base_${level})
    target_compile_definitions(weft_kernel_${level} PRIVATE WEFT_BASE_LEVEL=${weft_base_${level}})
  elseif(TARGET weft_common_headers)
    # 4.5 s once, 1.2 s less per file, and the same code. (Several files as one might be inlined otherwise.)
    target_precompile_headers(weft_kernel_${level} PRIVATE <algorithm> <bit> <cmath> <cstring> <type_traits> <utility> <vector>
      ${CMAKE_CURRENT_LIST_DIR}/cpu/level/gemm_intrinsics.h ${CMAKE_CURRENT_LIST_DIR}/kernels.h ${CMAKE_CURRENT_LIST_DIR}/cpu/workspace.h)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # what x86_intrinsics.h silences, which a precompiled header forgets
      target_compile_options(weft_kernel_${level} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
    endif()
  endif()
  target_sources(weft_kernel PRIVATE $<TARGET_OBJECTS:weft_kernel_${level}>)
  set_property(SOURCE ${CMAKE_CURRENT_LIST_DIR}/cpu/level.cpp APPEND PROPERTY COMPILE_DEFINITIONS WEFT_HAS_${level}=1)
  if(WEFT_FUZZ)  # no fuzzer computes: 1 or 2 s to compile a file instead of 8 to 16
    target_compile_options(weft_kernel_${level} PRIVATE -O0 -fno-sanitize=all)
  endif()
endforeach()
