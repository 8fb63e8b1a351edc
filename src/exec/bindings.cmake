# exec_bindings.cpp: add_all_bindings calls add_<file>_bindings of every file of exec/ops/, so that
# none is forgotten (exec/op_binding.h).
file(GLOB weft_op_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/exec/ops/*.cpp)
set(weft_bindings "// Made by exec/bindings.cmake from the files of exec/ops/.\n#include \"exec/op_binding.h\"\n\nnamespace weft {\n\n")
set(weft_binding_calls "")
foreach(file ${weft_op_files})
  get_filename_component(name ${file} NAME_WE)
  string(APPEND weft_bindings "void add_${name}_bindings(Bindings* bindings);\n")
  string(APPEND weft_binding_calls "  add_${name}_bindings(bindings);\n")
endforeach()
string(APPEND weft_bindings "void add_all_bindings(Bindings* bindings);\n\nvoid add_all_bindings(Bindings* bindings) {\n${weft_binding_calls}}\n\n}  // namespace weft\n")
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/exec_bindings.cpp CONTENT "${weft_bindings}" @ONLY)
target_sources(weft_exec PRIVATE ${CMAKE_BINARY_DIR}/exec_bindings.cpp)
