// train/local_copy.cpp: which objects make a checkpoint, a run, or a model folder.
#include "train/local_copy.h"

#include <stdlib.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "train/mirror.h"
#include "train/remote_run.h"
#include "train/store_listing.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

bool is_folder_of_tensors(const StoreListing& there) {
  return there.files.contains("COMMITTED") || there.files.contains("config.json");
}

bool is_run(const StoreListing& there) {
  return there.files.contains("run.yaml") || !there.steps().empty();
}

// The objects that the command needs, by name.
std::vector<std::string> choose(const StoreListing& there, LocalCopy::Part part) {
  std::vector<std::string> names;
  for (const auto& [name, size] : there.files) {
    if (name != "lock") names.push_back(name);
  }
  const auto add = [&names](const StoredFolder& folder) {
    for (const auto& [file, size] : folder.sizes) names.push_back(folder.name + "/" + file);
  };
  const auto steps = there.steps();
  if (part == LocalCopy::Part::kModel && !steps.empty()) add(*steps.back());
  if (part != LocalCopy::Part::kCheckpoints) return names;
  for (const StoredFolder* step : steps) add(*step);
  const StoredFolder* best = there.find("checkpoints/best");
  if (best && best->is_complete) add(*best);
  return names;
}

fs::path make_temporary() {
  std::string name = (fs::temp_directory_path() / "weft-copy-XXXXXX").string();
  if (!::mkdtemp(name.data()))
    throw RunError(fmt::format("cannot create a folder in {}", fs::temp_directory_path().string()));
  return name;
}

}  // namespace

bool has_remote_model(const std::string& path) {
  const StoreListing there = read_listing(open_object_store(path)->list(""));
  return is_folder_of_tensors(there) || is_run(there);
}

bool is_remote_model(const std::string& path) {
  if (!path.starts_with("s3://") || path.find('*') != std::string::npos) return false;
  if (path.ends_with(".safetensors")) return true;
  try {
    return has_remote_model(path);
  } catch (const Error&) {  // who opens it as data says what is wrong
    return false;
  }
}

LocalCopy::LocalCopy(const std::string& path, Part part)
    : given_(path), address_(path), path_(path) {
  if (!is_remote(path)) return;
  RetryingStore store(open_object_store(path), remote_times().retry);
  const std::string address = store.address(), name = address.substr(address.rfind('/') + 1);
  address_ = address;
  const StoreListing there = read_listing(store.list(""));
  std::vector<std::string> names = choose(there, part);
  const bool is_file = names.empty();
  if (!is_file && !is_folder_of_tensors(there) && !is_run(there)) {
    throw UserError(fmt::format("{}: there is no checkpoint, run or model", address),
                    "name a run directory, RUN/checkpoints/step-N, or RUN/final");
  }
  folder_ = make_temporary();
  path_ = (folder_ / name).string();
  try {
    if (is_file) {
      const std::string above = address.substr(0, address.rfind('/'));
      RetryingStore(open_object_store(above), remote_times().retry).get(name, path_);
      return;
    }
    for (const std::string& file : names)
      fs::create_directories((fs::path(path_) / file).parent_path());
    ThreadPool pool(kTransfers);
    pool.run(static_cast<int64_t>(names.size()), [&](int64_t i, int) {
      const std::string& file = names[static_cast<size_t>(i)];
      store.get(file, fs::path(path_) / file);
    });
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    throw;
  }
}

LocalCopy::~LocalCopy() {
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

std::string LocalCopy::as_given(std::string text) const {
  for (size_t at = 0; (at = text.find(path_, at)) != std::string::npos; at += address_.size())
    text.replace(at, path_.size(), address_);
  return text;
}

std::vector<std::string> LocalCopy::in(std::vector<std::string> words) const {
  for (std::string& word : words) {
    if (word == given_) word = path_;
    if (word == "--model=" + given_) word = "--model=" + path_;
  }
  return words;
}

}  // namespace weft
