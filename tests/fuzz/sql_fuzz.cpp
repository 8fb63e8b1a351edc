// tests/fuzz/sql_fuzz.cpp: any bytes have a normal form, which is its own.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/sql_form.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string form = weft::sql_form(text);
  weft::ensure(weft::sql_form(form) == form, "the form of a form is itself");
  weft::ensure(weft::sql_match(text, " " + text + "\n"), "spaces around it do not matter");
  return 0;
}
