// tests/cmd/eval_test.cpp: what weft eval reports about its rows.
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/cmd/run_weft.h"

namespace weft {
namespace {

using testing::Ended;
using testing::run_weft;
using testing::TemporaryFolder;

TEST(EvalCommand, WarnsOfChangedRows) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.txt", std::ios::binary) << "a whole row\nx\nbad \xff bytes\n";
  std::ofstream(folder / "run.yaml")
      << "name: e\nstorage: " << folder.path().string()
      << "\nmodel: {path: tests/golden/data/tiny_llama/model}\ndata: {train: [rows], eval: ["
      << (folder / "rows.txt").string() << "], tokenizer: bytes, seq_length: 64}\n";
  const Ended got =
      run_weft("eval --json --set launch.threads=1 " + (folder / "run.yaml").string());
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(parse_json(got.out, "output").at("rows").as_int(), 2);
  EXPECT_NE(got.err.find("rows.txt:3: bytes that are not UTF-8"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("1 rows dropped"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("1 rows with invalid UTF-8"), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find("padding"), std::string::npos) << got.err;
}

// launch.device is followed: with a GPU the CPU's loss, without one an error that says what to do.
TEST(EvalCommand, GpuIsUsedOrRejected) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.jsonl") << "{\"q\": \"a row\", \"a\": \"bc\"}\n";
  std::ofstream(folder / "run.yaml")
      << "name: e\nstorage: " << folder.path().string()
      << "\nmodel: {path: tests/golden/data/tiny_llama/model}\ndata: {train: [rows], eval: ["
      << (folder / "rows.jsonl").string()
      << "], tokenizer: bytes, seq_length: 64, source: '{q}', target: '{a}'}\n";
  const std::string words =
      "eval --json " + (folder / "run.yaml").string() + " --set launch.device=";
  const Ended cpu = run_weft(words + "cpu"), gpu = run_weft(words + "cuda");
  ASSERT_EQ(cpu.exit_code, 0) << cpu.err;
  if (testing::weft_has_gpu()) {
    ASSERT_EQ(gpu.exit_code, 0) << gpu.err;
    const Json wanted = parse_json(cpu.out, "cpu"), got = parse_json(gpu.out, "gpu");
    const double loss = wanted.at("eval_loss").as_number();
    EXPECT_NEAR(got.at("eval_loss").as_number(), loss, 1e-5 * loss);
    EXPECT_EQ(got.at("exact_match"), wanted.at("exact_match"));
  } else {
    EXPECT_EQ(gpu.exit_code, 2);
    EXPECT_NE(gpu.err.find("set launch.device to "), std::string::npos) << gpu.err;
  }
}

TEST(EvalCommand, TheDeviceIsAKey) {
  for (const char* words : {"eval run.yaml --device cuda", "train --device=gpu run.yaml"}) {
    const Ended got = run_weft(words);
    EXPECT_EQ(got.exit_code, 2) << words;
    EXPECT_NE(got.err.find("--set launch.device=cuda"), std::string::npos) << got.err;
  }
  EXPECT_EQ(run_weft("hash --device cuda x").err.find("--set"), std::string::npos);
}

}  // namespace
}  // namespace weft
