// tests/cmd/doctor_test.cpp: what doctor reports, and the speeds that it stores.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "base/json.h"
#include "tests/cmd/run_weft.h"

namespace weft {
namespace {

using testing::Ended;
using testing::run_weft;
using testing::TemporaryFolder;

TEST(DoctorCommand, ReportsTheMachineAndStoresSpeeds) {
  const TemporaryFolder cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  const Json before = parse_json(run_weft("doctor --json").out, "output");
  const Json& cpu = before.at("cpu");
  EXPECT_FALSE(cpu.at("model").as_string().empty());
  EXPECT_GE(cpu.at("cores").as_int(), 1);
  const auto& levels = cpu.at("levels").as_array();
  EXPECT_NE(std::find(levels.begin(), levels.end(), cpu.at("level")), levels.end());
  EXPECT_GT(before.at("memory").at("total_bytes").as_int(), 0);
  EXPECT_TRUE(before.at("speeds").is_null());
  const Json measured = parse_json(run_weft("doctor --measure --json").out, "output");
  for (const char* key : {"gflops_fp32", "gflops_bf16", "copy_gb_per_s"}) {
    EXPECT_GT(measured.at("speeds").at(key).as_number(), 0) << key;
  }
  EXPECT_TRUE(std::filesystem::exists(cache / "weft/speeds.json"));
  const Json after = parse_json(run_weft("doctor --json").out, "output");
  EXPECT_EQ(after.at("speeds"), measured.at("speeds"));
  const Ended text = run_weft("doctor");
  EXPECT_NE(text.out.find("GFLOP/s"), std::string::npos) << text.out;
}

// The lines of --version, each under its own key.
TEST(DoctorCommand, ReportsTheProgram) {
  const Json told = parse_json(run_weft("doctor --json").out, "output");
  const std::string version = run_weft("--version").out;
  const std::pair<const char*, const char*> lines[] = {{"weft ", "version"},
                                                       {"commit ", "commit"},
                                                       {"compiler ", "compiler"},
                                                       {"back ends ", "back_ends"}};
  for (const auto& [begin, key] : lines) {
    const std::string value = told.at(key).as_string();
    EXPECT_EQ(value.find('\n'), std::string::npos) << value;
    EXPECT_NE(version.find(begin + value + "\n"), std::string::npos) << version;
  }
}

TEST(DoctorCommand, UnknownEnvironmentValuesAreRejected) {
  for (const char* name : {"WEFT_COMM", "WEFT_CUDNN"}) {
    ::setenv(name, "nonsense", 1);
    const Ended told = run_weft("doctor");
    ::unsetenv(name);
    EXPECT_EQ(told.exit_code, 2) << name;
    EXPECT_NE(told.err.find(std::string(name) + "=nonsense, wanted "), std::string::npos)
        << told.err;
  }
}

// Damaged files and those of another machine are ignored; an unwritable folder causes a warning.
TEST(DoctorCommand, BadCachesAreNotFatal) {
  const TemporaryFolder cache;
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  std::filesystem::create_directory(cache / "weft");
  const char* const bad[] = {"",
                             "{",
                             "[]",
                             "null",
                             R"({"gpu": 3, "cpu_model": 7})",
                             R"({"cpu_model": "another", "level": "ref", "threads": 1,
      "gflops_fp32": 1, "gflops_bf16": 1, "gflops_fp32_one": 1, "gflops_bf16_one": 1,
      "copy_gb_per_s": 1})"};
  for (const char* text : bad) {
    for (const char* name : {"weft/speeds.json", "weft/speeds-gpu.json"}) {
      std::ofstream(cache / name) << text;
    }
    const Ended told = run_weft("doctor --json");
    ASSERT_EQ(told.exit_code, 0) << text << told.err;
    EXPECT_TRUE(parse_json(told.out, "output").at("speeds").is_null()) << text;
    EXPECT_TRUE(parse_json(told.out, "output").at("gpu_speeds").is_null()) << text;
  }
  std::filesystem::remove_all(cache / "weft");
  std::ofstream(cache / "weft") << "a file where the folder should be";
  const Ended measured = run_weft("doctor --measure --json");
  EXPECT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_NE(measured.err.find("speeds of the CPU could not be stored"), std::string::npos)
      << measured.err;
  const Json told = parse_json(measured.out, "output");
  EXPECT_GT(told.at("speeds").at("gflops_fp32").as_number(), 0);
  // A build that could have measured a GPU says why it did not.
  const bool lacks_gpu =
      !told.at("cuda").is_null() && told.at("cuda").at("devices").as_array().empty();
  EXPECT_EQ(measured.err.find("speeds of a GPU were not measured: ") != std::string::npos,
            lacks_gpu)
      << measured.err;
}

// What a build without CUDA says, or what one with it finds here.
TEST(DoctorCommand, ReportsGpusAndWhatPreventsTheirUse) {
  const Json told = parse_json(run_weft("doctor --json").out, "output");
  const std::string text = run_weft("doctor").out, version = run_weft("--version").out;
  const Json& cuda = told.at("cuda");
  EXPECT_EQ(cuda.is_null(), version.find(" cuda,") == std::string::npos) << version;
  EXPECT_NE(version.find("back ends ref cpu"), std::string::npos) << version;
  EXPECT_NE(version.find(", shm"), std::string::npos) << version;
  if (cuda.is_null()) {
    EXPECT_NE(text.find("CUDA back end: GPUs are not used"), std::string::npos) << text;
    return;
  }
  EXPECT_FALSE(cuda.at("runtime").is_null());
  const std::string driver =
      cuda.at("driver").is_null() ? "no driver" : "driver for " + cuda.at("driver").as_string();
  EXPECT_NE(text.find("cuda        " + driver + ", built with "), std::string::npos) << text;
  const bool has_gpus = !cuda.at("devices").as_array().empty();
  EXPECT_EQ(has_gpus, text.find("compute capability") != std::string::npos) << text;
  EXPECT_EQ(has_gpus, text.find("lacks       a GPU: ") == std::string::npos) << text;
}

}  // namespace
}  // namespace weft
