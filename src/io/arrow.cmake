# Room io. Arrow C++ comes with the pyarrow wheel, where tools/setup.sh has put it; without it the
# folder no_arrow says so when called.
find_package(ZLIB REQUIRED)
find_library(WEFT_ZSTD_LIBRARY zstd REQUIRED)
find_path(WEFT_ZSTD_HEADERS zstd.h REQUIRED)
add_library(weft_zstd INTERFACE)
target_include_directories(weft_zstd SYSTEM INTERFACE ${WEFT_ZSTD_HEADERS})
target_link_libraries(weft_zstd INTERFACE ${WEFT_ZSTD_LIBRARY})

if(WEFT_ARROW)
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/tools/setup.sh arrow-folder
    OUTPUT_VARIABLE arrow_folder OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT arrow_folder)
    message(FATAL_ERROR "Arrow C++ is not installed: run tools/setup.sh build, or set -DWEFT_ARROW=OFF")
  endif()
  file(GLOB arrow_libraries ${arrow_folder}/libparquet.so.* ${arrow_folder}/libarrow.so.*)
  add_library(weft_arrow INTERFACE)
  target_include_directories(weft_arrow SYSTEM INTERFACE ${arrow_folder}/include)
  target_link_libraries(weft_arrow INTERFACE ${arrow_libraries})
  weft_room(io DEPENDS tensor LIBS ZLIB::ZLIB weft_zstd weft_arrow EXCLUDE /io/no_arrow/)
else()
  weft_room(io DEPENDS tensor LIBS ZLIB::ZLIB weft_zstd EXCLUDE /io/arrow/)
endif()
