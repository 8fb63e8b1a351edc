// tests/e2e/readme_test.cpp: the commands of README's first run, in an empty folder, verbatim.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "tests/program.h"

namespace weft::testing {
namespace {

// Code blocks without a language, from the heading to the next one.
std::vector<std::string> blocks_below(const std::string& page, const std::string& heading) {
  const size_t begin = page.find("\n" + heading + "\n");
  if (begin == std::string::npos) return {};
  const std::string part = page.substr(begin, page.find("\n## ", begin + 2) - begin);
  std::vector<std::string> blocks;
  const std::regex block("\n```(\\w*)\n([^`]*)\n```\n");
  for (std::sregex_iterator at(part.begin(), part.end(), block), end; at != end; ++at) {
    if ((*at)[1].length() == 0) blocks.push_back((*at)[2]);
  }
  return blocks;
}

void replace_all(std::string* text, const std::string& from, const std::string& to) {
  ASSERT_NE(text->find(from), std::string::npos) << "README has no \"" << from << "\"";
  for (size_t at = 0; (at = text->find(from, at)) != std::string::npos; at += to.size()) {
    text->replace(at, from.size(), to);
  }
}

TEST(Readme, TheCommandsOfTheFirstRunWork) {
  const std::vector<std::string> blocks = blocks_below(slurp("README.md"), "## A first run");
  ASSERT_EQ(blocks.size(), 4u);
  std::string script = "set -ex\n";
  for (const std::string& block : blocks) script += block + "\n";
  // A hundredth of the steps, and fewer rows; everything else is as written.
  replace_all(&script, "corpus data ", "corpus data --train 200 --test 20 ");
  replace_all(&script, "steps: 300", "steps: 3");
  replace_all(&script, "every: 100", "every: 1");
  replace_all(&script, "eval_every=100", "eval_every=1");
  replace_all(&script, "generate=50", "generate=2");
  replace_all(&script, "steps=400", "steps=4");
  replace_all(&script, "step-00000300", "step-00000003");
  const TemporaryFolder folder;
  const std::filesystem::path program = WEFT_PROGRAM;
  const std::string command = "cd '" + folder.path().string() + "' && PATH='" +
                              program.parent_path().string() + "':$PATH timeout 120 bash script " +
                              "> out 2>&1";
  std::ofstream(folder / "script") << script;
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << slurp(folder / "out");
  expect_parts(slurp(folder / "out"),
               {"exact match", "SQL match", "recommended:", "all layouts agree"});
  for (const char* path : {"runs/first/final/model.safetensors", "runs/second/final/config.json",
                           "runs/best/checkpoints/best/COMMITTED",
                           "runs/two/checkpoints/step-00000004", "runs/first-verify/verify.json"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / path)) << path;
  }
}

}  // namespace
}  // namespace weft::testing
