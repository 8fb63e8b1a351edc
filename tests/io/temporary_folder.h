// tests/io/temporary_folder.h: a folder for one test, removed with it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace weft::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-XXXXXX").string();
    if (!::mkdtemp(name.data())) ADD_FAILURE() << "no temporary folder at " << name;
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// The message and hint of the Error that fn throws; fails where it throws none.
template <typename ErrorType, typename Fn>
std::string error_of(const Fn& fn) {
  try {
    fn();
  } catch (const ErrorType& e) {
    return std::string(e.what()) + "\n" + e.hint();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace weft::testing
