// tests/fuzz/pickle_fuzz.cpp: any bytes are a pickle or a UserError, and a walk over its values
// ends.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "io/pickle.h"

namespace {

int budget;

void walk(const weft::PickleValue& value, int depth) {
  if (depth > 200) std::abort();
  if (--budget < 0) return;
  if (value.is_string() && value.as_string().size() > 4096) std::abort();
  if (value.is_list()) {
    for (size_t i = 0; i < value.size(); ++i) walk(value[i], depth + 1);
  } else if (value.is_dict()) {
    for (size_t i = 0; i < value.num_entries(); ++i) {
      walk(value.key(i), depth + 1);
      walk(value.value(i), depth + 1);
    }
  } else if (value.kind() == weft::Pickle::Kind::kObject) {
    static_cast<void>(value.class_name());
    walk(value.arguments(), depth + 1);
  }
  if (const auto state = value.state()) walk(*state, depth + 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const weft::Pickle pickle({reinterpret_cast<const char*>(data), size}, "fuzz");
    budget = 100'000;
    walk(pickle.root(), 0);
  } catch (const weft::UserError&) {
  }
  return 0;
}
