# The program weft: every file of src/cmd.
file(GLOB commands CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cmd/*.cpp)
find_package(CLI11 REQUIRED)
add_executable(weft ${commands})
target_link_libraries(weft PRIVATE weft_flags weft_verify CLI11::CLI11)
set_target_properties(weft PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# The commit is that of the last configuration; where there is no git, "unknown".
execute_process(COMMAND git describe --always --dirty --abbrev=12
                WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
set(back_ends "ref cpu")
if(WEFT_CUDA)
  string(APPEND back_ends " cuda")
endif()
string(APPEND back_ends ", shm")
if(WEFT_GLOO)
  string(APPEND back_ends " gloo")
endif()
if(WEFT_CUDA)
  string(APPEND back_ends " cuda_ipc")
  if(WEFT_NCCL_HEADERS)
    string(APPEND back_ends " nccl")
  endif()
endif()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cmd/version.cpp PROPERTIES COMPILE_DEFINITIONS
  "WEFT_VERSION=\"${PROJECT_VERSION}\";WEFT_COMMIT=\"${commit}\";WEFT_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\";WEFT_BACK_ENDS=\"${back_ends}\"")

# Thin code: compiled fast. CLI11 is the heaviest header we have; the two files that include it are not worth optimising.
if(TARGET weft_common_headers)
  target_precompile_headers(weft REUSE_FROM weft_common_headers)
endif()
target_compile_options(weft PRIVATE $<$<CONFIG:Release>:-O1>)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cmd/command_line.cpp ${CMAKE_SOURCE_DIR}/src/cmd/command_options.cpp
  PROPERTIES COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON)
