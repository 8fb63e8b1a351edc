// tests/fuzz/yaml_fuzz.cpp: any bytes as a run file, and parsed values survive printing.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "base/options.h"
#include "base/yaml.h"

namespace {

struct Config {
  std::string name, mode = "fast", text = "{text}";
  int64_t seed = 42, tp = 1;
  double lr = 1e-5;
  bool shuffle = true;
  std::vector<std::string> files;
  std::vector<double> betas = {0.9, 0.999};
  std::map<std::string, std::string> env;
  std::optional<int64_t> num_layers;
  std::optional<double> dropout;
  std::optional<std::string> source;
};

void fill(weft::OptionTable& t, Config& c) {
  t.add("name", &c.name, "").required();
  t.add("seed", &c.seed, "").at_least(0);
  t.add("env", &c.env, "");
  t.add("a.mode", &c.mode, "").one_of({"fast", "exact"}).not_built_values({"exact"});
  t.add("a.text", &c.text, "");
  t.add("a.tp", &c.tp, "").not_built("tensor parallelism");
  t.add("a.lr", &c.lr, "").above(0);
  t.add("b.s", &c.shuffle, "");
  t.add("b.f", &c.files, "");
  t.add("b.b", &c.betas, "").length(2);
  t.add("b.n", &c.num_layers, "");
  t.add("b.d", &c.dropout, "");
  t.add("b.t", &c.source, "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Config config;
  weft::OptionTable table;
  fill(table, config);
  std::vector<std::string> complaints;
  table.set(text, complaints);
  try {
    table.read(weft::parse_yaml(text, "fuzz"), "fuzz", complaints);
  } catch (const weft::UserError&) {
  }
  const std::string printed = table.resolved();
  Config again;
  weft::OptionTable second;
  fill(second, again);
  complaints.clear();
  second.read(weft::parse_yaml(printed, "printed"), "printed", complaints);
  weft::ensure(complaints.empty(), "a resolved file is read back");
  const auto before = table.entries(), after = second.entries();
  for (size_t i = 0; i < before.size(); ++i) {
    weft::ensure(before[i].value == after[i].value, "to the same values");
  }
  return 0;
}
