// train/local_copy.h: a checkpoint, run or model in an object store, as a temporary folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace weft {

// Of a local path it is that path. Of s3://...: what was copied, deleted with this object.
// UserError where the store has no checkpoint, run, model or file there.
class LocalCopy {
 public:
  // A run: with its newest complete checkpoint, with its records alone, or with every complete
  // checkpoint.
  enum class Part { kModel, kRecords, kCheckpoints };
  explicit LocalCopy(const std::string& path, Part part = Part::kModel);
  ~LocalCopy();
  LocalCopy(const LocalCopy&) = delete;
  LocalCopy& operator=(const LocalCopy&) = delete;
  const std::string& path() const { return path_; }
  // A text about the copy, about what was given.
  std::string as_given(std::string text) const;
  // Arguments for a rank, which must not copy it again.
  std::vector<std::string> in(std::vector<std::string> words) const;

 private:
  std::string given_, address_, path_;  // address_: what was given, without a query
  std::filesystem::path folder_;        // empty: nothing was copied
};

// Whether a checkpoint, run or model is there. Throws where the store cannot be asked.
bool has_remote_model(const std::string& path);
// Whether s3://... is one of these, and not data.
bool is_remote_model(const std::string& path);

}  // namespace weft
