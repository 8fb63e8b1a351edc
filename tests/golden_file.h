// tests/golden_file.h: a long text against a file of the repository.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"

namespace weft::testing {

// Where a difference is intended, copy the new text over the old one.
inline void expect_file(const std::filesystem::path& wanted, const std::string& text) {
  if (std::filesystem::exists(wanted) && read_file(wanted) == text) return;
  const auto got =
      std::filesystem::temp_directory_path() / ("weft_test_" + wanted.filename().string());
  std::ofstream(got) << text;
  ADD_FAILURE() << "another text: diff " << wanted.string() << " " << got.string();
}

}  // namespace weft::testing
