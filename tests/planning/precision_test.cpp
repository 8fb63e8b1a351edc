// tests/planning/precision_test.cpp: what train.precision: auto becomes, and how that is reported.
#include "planning/precision.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

constexpr const char* kRun =
    "name: r\nmodel: {path: m}\ndata: {train: [t.txt]}\nlaunch: {device: cpu}\n";

class PrecisionTest : public ::testing::Test {
 protected:
  RunFile read(const std::vector<std::string>& sets) const {
    std::ofstream(folder_ / "run.yaml") << kRun;
    return RunFile(folder_ / "run.yaml", sets);
  }
  testing::TemporaryFolder folder_;
};

TEST(Precision, TheBestThatAllGpusHave) {
  const CudaInfo::Gpu turing{"Tesla T4", int64_t{16} << 30, 7, 5}, ampere{"A100", 0, 8, 0},
      hopper{"H200", 0, 9, 0};
  for (const bool overflows : {false, true}) {
    const char* without_bf16 = overflows ? "fp32" : "fp16";
    EXPECT_EQ(best_gpu_precision({ampere}, overflows), "bf16");
    EXPECT_EQ(best_gpu_precision({hopper, ampere}, overflows), "bf16");
    EXPECT_EQ(best_gpu_precision({turing}, overflows), without_bf16);
    EXPECT_EQ(best_gpu_precision({hopper, turing}, overflows), without_bf16);
    EXPECT_EQ(best_gpu_precision({}, overflows), "bf16");  // planned for another machine
  }
}

// transformers keeps parts of T5 in fp32 and clamps the rest.
TEST_F(PrecisionTest, Fp16IsWarnedOfWhereTheFamilyOverflowsIt) {
  const Json t5 = parse_json(R"({"architectures": ["T5ForConditionalGeneration"]})", "c");
  const Json bloom = parse_json(R"({"architectures": ["BloomForCausalLM"]})", "c");
  const RunFile half = read({"train.precision=fp16"}), other = read({"train.precision=bf16"});
  const std::string warning = fp16_warning(half.config(), t5);
  for (const char* part : {"train.precision: fp16", "t5", "65504", "bf16 or fp32"})
    EXPECT_NE(warning.find(part), std::string::npos) << warning;
  EXPECT_EQ(fp16_warning(half.config(), bloom), "");
  EXPECT_EQ(fp16_warning(other.config(), t5), "");
}

TEST_F(PrecisionTest, AutoIsFp32OnTheCpu) {
  RunFile file = read({"train.precision=auto"});
  EXPECT_THROW(file.config().compute_dtype(), BugError);  // it must be chosen first
  EXPECT_EQ(choose_precision(&file), "train.precision: auto is fp32 on the CPU");
  EXPECT_EQ(file.config().compute_dtype(), Dtype::kF32);
  EXPECT_FALSE(file.config().has_masters());
  EXPECT_NE(file.resolved().find("  precision: fp32  # auto\n"), std::string::npos)
      << file.resolved();
  EXPECT_EQ(choose_precision(&file), "");  // it has been chosen
}

TEST_F(PrecisionTest, ANamedOneStays) {
  RunFile file = read({"train.precision=bf16"});
  EXPECT_EQ(choose_precision(&file), "");
  EXPECT_NE(file.resolved().find("  precision: bf16\n"), std::string::npos) << file.resolved();
}

// A contradiction that appears only with the chosen value is refused as that of a given one.
TEST_F(PrecisionTest, TheChosenValueIsChecked) {
  RunFile file = read({"train.precision=auto", "train.master_weights=false"});
  try {
    file.choose_precision("fp16");
    FAIL() << "fp16 without master weights";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("train.master_weights: false"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace weft
