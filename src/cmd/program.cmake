# The program weft: every file of src/cmd.
file(GLOB commands CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cmd/*.cpp)
find_package(CLI11 REQUIRED)
add_library(weft_commands OBJECT ${commands})
target_link_libraries(weft_commands PRIVATE weft_flags weft_verify CLI11::CLI11)
# Where several objects define one weak function (such as those of std::string), the linker uses
# the first copy. Rooms that handle data are fully optimized, so their objects come before those
# compiled with -O1.
set(weft_first_objects "")
foreach(room base tensor text io data comm checkpoint exec generate model)
  list(APPEND weft_first_objects $<TARGET_OBJECTS:weft_${room}>)
endforeach()
add_executable(weft ${weft_first_objects} $<TARGET_OBJECTS:weft_commands>)
target_link_libraries(weft PRIVATE weft_flags weft_verify)
set_target_properties(weft PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

# The program of the wheel draws no pictures: Cairo brings 15 libraries, among them X11's, some of which need a newer glibc than everything
# else. Defined here, the drawing functions of the archive are not linked, and Cairo with them.
add_executable(weft_wheel EXCLUDE_FROM_ALL ${weft_first_objects} $<TARGET_OBJECTS:weft_commands> ${CMAKE_SOURCE_DIR}/src/track/plot_none.cpp)
target_link_libraries(weft_wheel PRIVATE weft_flags weft_verify)
target_link_options(weft_wheel PRIVATE -Wl,--as-needed)
set_target_properties(weft_wheel PROPERTIES OUTPUT_NAME weft RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel/program)

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

# Thin code, compiled fast. CLI11 is our heaviest header, so the two files that include CLI11 are
# compiled as one.
weft_share_headers(weft_commands)
target_compile_options(weft_commands PRIVATE $<$<CONFIG:Release>:-O1>)
