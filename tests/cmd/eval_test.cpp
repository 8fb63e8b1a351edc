// tests/cmd/eval_test.cpp: what weft eval says of its rows.
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/cmd/run_program.h"

namespace weft {
namespace {

using testing::Outcome;
using testing::run_weft;
using testing::TemporaryFolder;

TEST(EvalCommand, WarnsOfRowsThatAreNotAsTheyWere) {
  const TemporaryFolder folder;
  std::ofstream(folder / "rows.txt", std::ios::binary) << "a whole row\nx\nbad \xff bytes\n";
  std::ofstream(folder / "run.yaml")
      << "name: e\nstorage: " << folder.path().string()
      << "\nmodel: {path: tests/golden/data/tiny_llama/model}\ndata: {train: [rows], eval: ["
      << (folder / "rows.txt").string() << "], tokenizer: bytes, seq_length: 64}\n";
  const Outcome got =
      run_weft("eval --json --set launch.threads=1 " + (folder / "run.yaml").string());
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(parse_json(got.out, "output").at("rows").as_int(), 2);
  EXPECT_NE(got.err.find("rows.txt:3: bytes that are no UTF-8"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("1 rows dropped"), std::string::npos) << got.err;
  EXPECT_NE(got.err.find("1 rows with invalid UTF-8"), std::string::npos) << got.err;
  EXPECT_EQ(got.err.find("padding"), std::string::npos) << got.err;
}

}  // namespace
}  // namespace weft
