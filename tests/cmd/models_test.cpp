// tests/cmd/models_test.cpp: hash, diff, inspect and export through the built program.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "tests/checkpoint/model_fixture.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using testing::store_checkpoint;
using testing::TemporaryFolder;

struct Printed {
  int exit_code;
  std::string text;  // standard output and error
};

Printed weft(const std::string& words, const std::string& after = "2>&1") {
  const std::string command = std::string("'") + WEFT_PROGRAM + "' " + words + " " + after;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  std::string text;
  std::array<char, 4096> piece;
  for (size_t n; (n = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    text.append(piece.data(), n);
  }
  const int status = ::pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

bool has(const Printed& o, const std::string& part) {
  return o.text.find(part) != std::string::npos;
}

std::string last_line(std::string text) {
  if (!text.empty()) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

TEST(Program, HelpAndVersion) {
  const Printed help = weft("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* name : {"train", "verify", "plan", "eval", "generate", "export", "inspect",
                           "hash", "diff", "tokenize", "status", "agent", "dashboard", "doctor"}) {
    EXPECT_TRUE(has(help, fmt::format("\n  {} ", name))) << name;
  }
  EXPECT_EQ(weft("").exit_code, 2);
  const Printed version = weft("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(has(version, "weft ") && has(version, "commit ") && has(version, "compiler ") &&
              has(version, "back ends "));
  EXPECT_TRUE(has(weft("hash --help"), "PATH"));
}

TEST(Program, WrongArgumentsExitTwoWithAHint) {
  Printed o = weft("hsah x");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_TRUE(has(o, "error: unknown command 'hsah'\n  hint: did you mean 'hash'?")) << o.text;
  o = weft("inspect x --jsno");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_TRUE(has(o, "did you mean '--json'?")) << o.text;
  o = weft("diff x");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_TRUE(has(o, "B is required")) << o.text;
  EXPECT_EQ(weft("hash ./nothing").exit_code, 2);
}

TEST(Program, HashDiffExport) {
  TemporaryFolder folder;
  const std::string at = folder.path().string();
  store_checkpoint(folder / "a", 2, 2, 1, true);
  store_checkpoint(folder / "b", 1, 1, 0);
  store_checkpoint(folder / "c", 1, 2, 0, false, true, 0.5f);
  const Printed a = weft("hash " + at + "/a"), b = weft("hash " + at + "/b");
  EXPECT_EQ(a.exit_code, 0);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(last_line(a.text).substr(0, 7), "states ");
  Printed o = weft("diff " + at + "/a " + at + "/b");
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_TRUE(has(o, "identical")) << o.text;
  o = weft("diff " + at + "/a " + at + "/c");
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(has(o, "model.norm.weight max_diff 0.5 different 1 of 6 first (5)")) << o.text;
  o = weft("export " + at + "/a " + at + "/out");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  const std::string weights = last_line(weft("hash " + at + "/out").text);
  EXPECT_TRUE(has(a, weights)) << weights;
  EXPECT_EQ(weft("export " + at + "/a " + at + "/out").exit_code, 2);
  EXPECT_EQ(weft("export " + at + "/a " + at + "/out --overwrite --dtype fp16").exit_code, 0);
  EXPECT_EQ(weft("export " + at + "/a " + at + "/x --dtype fp8").exit_code, 2);
  EXPECT_EQ(weft("diff " + at + "/a " + at + "/out").exit_code, 1);
}

TEST(Program, ExportForTrainingPrograms) {
  TemporaryFolder folder;
  const std::string at = folder.path().string(), to_x = "export " + at + "/a " + at + "/x ";
  store_checkpoint(folder / "a", 2, 2, 1, true);
  EXPECT_TRUE(has(weft(to_x + "--format onnx"), "--format onnx, wanted hf, dcp or deepspeed"));
  Printed o = weft(to_x + "--format deepspeed --dtype bf16");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_TRUE(has(o, "--dtype bf16 with --format deepspeed")) << o.text;
  o = weft(to_x + "--format deepspeed --max-shard-size 1GB");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_TRUE(has(o, "--max-shard-size with --format deepspeed")) << o.text;
  EXPECT_FALSE(fs::exists(folder / "x"));
  const Printed stored = weft("hash " + at + "/a");
  for (const char* format : {"dcp", "deepspeed"}) {
    o = weft(fmt::format("export {0}/a {0}/{1} --format {1}", at, format));
    EXPECT_EQ(o.exit_code, 0) << o.text;
    EXPECT_TRUE(has(o, "weights only, the source records no optimizer")) << o.text;
    const std::string weights = last_line(weft("hash " + at + "/" + format).text);
    EXPECT_TRUE(weights.starts_with("weights ") && has(stored, weights)) << weights;
  }
}

TEST(Program, DiffOfStatesThatOneLacks) {
  TemporaryFolder folder;
  const std::string at = folder.path().string();
  store_checkpoint(folder / "a", 1, 1, 0);
  store_checkpoint(folder / "bare", 1, 1, 0, false, false);
  testing::store_folder(folder / "hf");
  Printed o = weft("diff " + at + "/a " + at + "/bare");
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(has(o, "states only in A\n") && !has(o, "identical")) << o.text;
  o = weft("diff " + at + "/bare " + at + "/a");
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_TRUE(has(o, "states only in B\n")) << o.text;
  for (const char* names : {"/a /hf", "/hf /bare"}) {
    const std::string both = names;
    const size_t cut = both.find(' ');
    o = weft("diff " + at + both.substr(0, cut) + " " + at + both.substr(cut + 1));
    EXPECT_EQ(o.exit_code, 0) << names << o.text;
  }
}

TEST(Program, InspectReportsTheKind) {
  TemporaryFolder folder;
  const std::string at = folder.path().string();
  store_checkpoint(folder / "a", 2, 2, 1, true);
  const Printed o = weft("inspect --json " + at + "/a");
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const Json found = parse_json(o.text, "inspect");
  EXPECT_EQ(found.at("kind").as_string(), "checkpoint");
  EXPECT_EQ(found.at("step").as_int(), 12);
  EXPECT_EQ(found.at("parameters").as_int(), 11 * 6 + 10 * 6 + 6 * 10 + 6);
  EXPECT_EQ(found.at("layout").at("ranks").as_int(), 4);
  EXPECT_EQ(found.at("states").at("tensors").as_int(), 8);
  EXPECT_TRUE(has(weft("inspect " + at + "/a"), "model.norm.weight: fp32 (6)"));
  std::ofstream(folder / "rows.jsonl") << "{\"q\": \"x\", \"n\": 1}\n{\"q\": \"y\"}";
  const Json rows = parse_json(weft("inspect --json " + at + "/rows.jsonl").text, "inspect");
  EXPECT_EQ(rows.at("rows").as_int(), 2);
  EXPECT_EQ(rows.at("columns").as_array()[1].as_string(), "n");
  std::ofstream(folder / "bad.safetensors") << "short";
  const Printed bad = weft("inspect " + at + "/bad.safetensors");
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_TRUE(has(bad, "truncated")) << bad.text;
}

TEST(Program, OutputThatCannotBeWritten) {
  EXPECT_EQ(weft("--help", ">/dev/full 2>/dev/null").exit_code, 1);
}

}  // namespace
}  // namespace weft
