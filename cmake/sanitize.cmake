# WEFT_SANITIZE=address,undefined: all our code is built with these, and a finding aborts the program.
set(WEFT_SANITIZE "" CACHE STRING "sanitizers, separated by commas")
if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ warns of what its own instrumentation hides from it: std::regex is "used uninitialized".
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
  add_link_options(-fsanitize=${WEFT_SANITIZE})
endif()
