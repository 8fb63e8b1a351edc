// tests/planning/speeds_test.cpp: stored speeds are read back, others are not.
#include "planning/speeds.h"

#include <gtest/gtest.h>

#include <fstream>

#include "planning/machine.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

using testing::TemporaryFolder;

Speeds cpu_speeds() {
  Speeds s;
  s.cpu_model = read_machine().cpu_model;
  s.level = "ref";
  s.threads = 3;
  s.gflops_fp32 = 10.5;
  s.gflops_bf16 = 20;
  s.gflops_fp32_one = 5;
  s.gflops_bf16_one = 10;
  s.copy_gb_per_s = 12.25;
  return s;
}

TEST(Speeds, RoundTrip) {
  const TemporaryFolder folder;
  const auto path = folder / "a/b/speeds.json";
  EXPECT_FALSE(load_speeds("ref", path));
  save_speeds(cpu_speeds(), path);
  const auto got = load_speeds("ref", path);
  ASSERT_TRUE(got);
  EXPECT_EQ(speeds_to_json(*got), speeds_to_json(cpu_speeds()));
}

TEST(Speeds, OfAnotherMachineOrDamagedAreIgnored) {
  const TemporaryFolder folder;
  const auto path = folder / "speeds.json";
  save_speeds(cpu_speeds(), path);
  EXPECT_FALSE(load_speeds("avx2", path));
  Speeds other = cpu_speeds();
  other.cpu_model = "another";
  save_speeds(other, path);
  EXPECT_FALSE(load_speeds("ref", path));
  other = cpu_speeds();
  other.gflops_bf16 = 0;
  save_speeds(other, path);
  EXPECT_FALSE(load_speeds("ref", path));
  std::ofstream(path) << "{";
  EXPECT_FALSE(load_speeds("ref", path));
}

TEST(Machine, ModelsAndFeaturesOfBothArchitectures) {
  EXPECT_EQ(parse_cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2GHz\n"), "Some CPU @ 2GHz");
  EXPECT_EQ(parse_cpu_model("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n"), "Neoverse-V1");
  EXPECT_EQ(parse_cpu_model("CPU implementer\t: 0x61\nCPU part\t: 0x022\n"),
            "Arm implementer 0x61 part 0x022");
  EXPECT_EQ(parse_cpu_model(""), "unknown");
  EXPECT_EQ(parse_cpu_features("flags\t\t: fpu avx2 sse avx512_bf16\n"),
            (std::vector<std::string>{"avx2", "avx512_bf16"}));
  EXPECT_EQ(parse_cpu_features("Features\t: fp asimd bf16\n"),
            (std::vector<std::string>{"asimd", "bf16"}));
}

}  // namespace
}  // namespace weft
