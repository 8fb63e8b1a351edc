// tests/base/log_test.cpp: a log file has every line, including lines logged before it was set.
#include "base/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace weft {
namespace {

TEST(Log, TheFileHasTheLinesBeforeIt) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("weft_log_{}", getpid());
  log_warning("a tensor that nothing uses: {{}}");
  set_log_file(path);
  log_info("started");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  const size_t early = text.str().find(" warning a tensor that nothing uses: {}\n");
  ASSERT_NE(early, std::string::npos) << text.str();
  EXPECT_GT(text.str().find(" info started\n"), early);
}

}  // namespace
}  // namespace weft
