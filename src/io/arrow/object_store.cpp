// io/arrow/object_store.cpp: Arrow's S3 as an object store, and which of its failures may pass.
#include "io/object_store.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/io/interfaces.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "base/path.h"
#include "io/arrow/arrow_files.h"
#include "io/file_system.h"

namespace weft {
namespace {

namespace fs = arrow::fs;
constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int64_t kMostCopied = int64_t{5} << 30;  // S3 copies no larger object by one request

bool has_any(const std::string& text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(),
                     [&text](const char* word) { return text.find(word) != std::string::npos; });
}

// Keys of a machine's role in the cloud are not seen here.
bool has_keys() {
  const auto is_set = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value;
  };
  if (is_set("AWS_ACCESS_KEY_ID") || is_set("AWS_PROFILE") || is_set("AWS_ROLE_ARN") ||
      is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
      is_set("AWS_CONTAINER_CREDENTIALS_FULL_URI") || is_set("AWS_SHARED_CREDENTIALS_FILE") ||
      is_set("AWS_CONFIG_FILE")) {
    return true;
  }
  std::error_code unknown;
  const char* home = std::getenv("HOME");
  return home && std::filesystem::exists(std::filesystem::path(home) / ".aws", unknown);
}

bool has_role() {
  const char* disabled = std::getenv("AWS_EC2_METADATA_DISABLED");
  return !disabled || std::string_view(disabled) != "true";
}

// By Arrow's text, which has the name of the server's error or the HTTP status.
[[noreturn]] void fail(const std::string& address, const char* doing, const std::string& text) {
  const std::string message = fmt::format("storage {}: {} failed: {}", address, doing, text);
  if (has_any(text, {"NO_SUCH_BUCKET", "NoSuchBucket"})) {
    throw UserError(message, "create the bucket, or correct storage");
  }
  if (has_any(text, {"ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH",
                     "SignatureDoesNotMatch", "INVALID_CLIENT_TOKEN_ID", "UNRECOGNIZED_CLIENT",
                     "MISSING_AUTHENTICATION_TOKEN", "EXPIRED_TOKEN", "ExpiredToken",
                     "HTTP status 403", "HTTP status 401", "InvalidAccessKeyId"})) {
    throw UserError(message,
                    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE) to keys that "
                    "may read and write there");
  }
  if (has_any(text, {"Path does not exist", "NO_SUCH_KEY", "NoSuchKey"})) {
    throw UserError(message,
                    "check the address; `weft inspect` of the folder above shows what is "
                    "there");
  }
  if (has_any(text, {"HTTP status 301", "PERMANENT_REDIRECT", "PermanentRedirect"})) {
    throw UserError(message, "set AWS_REGION to the region of the bucket");
  }
  constexpr const char* kNoKeys =
      "no keys were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE";
  const bool is_network = has_any(text, {"NETWORK_CONNECTION", "REQUEST_TIMEOUT"});
  if (!has_keys() && !has_role() && !is_network) throw UserError(message, kNoKeys);
  throw StoreAway(message, fmt::format("check the network, AWS_ENDPOINT_URL and AWS_REGION{}{}",
                                       has_keys() ? "" : "; ", has_keys() ? "" : kNoKeys));
}

class SourceFile {
 public:
  SourceFile(const std::filesystem::path& path) : path_(path) {
    fd_ = open_plain_file(path, O_RDONLY);
    if (fd_ < 0) refuse();
  }
  ~SourceFile() { ::close(fd_); }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;
  size_t read(char* out, size_t size) {
    for (;;) {
      const ssize_t got = ::read(fd_, out, size);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) refuse();
    }
  }

 private:
  [[noreturn]] void refuse() {
    throw RunError(fmt::format("cannot read {}: {}", path_.string(), std::strerror(errno)));
  }
  std::filesystem::path path_;
  int fd_;
};

class S3Store : public ObjectStore {
 public:
  explicit S3Store(std::string address) : address_(std::move(address)) {
    const size_t query = std::min(address_.find('?'), address_.size());
    query_ = address_.substr(query);
    address_.resize(query);
    while (address_.ends_with('/')) address_.pop_back();
  }

  std::string address() const override { return address_; }

  std::vector<StoredObject> list(const std::string& folder) override {
    const OpenedUri base = open(""), at = open(folder);
    fs::FileSelector selector;
    selector.base_dir = at.path;
    selector.recursive = true;
    selector.allow_not_found = true;
    std::vector<StoredObject> found;
    for (const fs::FileInfo& info : take(at.system->GetFileInfo(selector), "listing the objects")) {
      if (info.IsFile()) found.push_back({info.path().substr(base.path.size() + 1), info.size()});
    }
    if (found.empty()) check_bucket(base);
    std::sort(found.begin(), found.end(),
              [](const StoredObject& a, const StoredObject& b) { return a.name < b.name; });
    return found;
  }

  std::optional<std::string> find(const std::string& name) override {
    const OpenedUri at = open(name);
    const fs::FileInfo info = take(at.system->GetFileInfo(at.path), "looking for an object");
    if (!info.IsFile()) return std::nullopt;
    std::string bytes;
    read(at, [&bytes](const char* data, size_t size) { bytes.append(data, size); });
    return bytes;
  }

  void get(const std::string& name, const std::filesystem::path& to) override {
    FileWriter out(to, FileWriter::Mode::kTruncate);
    read(open(name), [&out](const char* data, size_t size) { out.write(data, size); });
    out.sync();
  }

  void put(const std::string& name, std::string_view bytes) override {
    write(name, [&bytes](arrow::io::OutputStream& out) {
      return out.Write(bytes.data(), static_cast<int64_t>(bytes.size()));
    });
  }

  void put_file(const std::string& name, const std::filesystem::path& from) override {
    SourceFile file(from);
    std::vector<char> block(kBlockBytes);
    write(name, [&](arrow::io::OutputStream& out) {
      for (;;) {
        const size_t size = file.read(block.data(), block.size());
        if (size == 0) return arrow::Status::OK();
        ARROW_RETURN_NOT_OK(out.Write(block.data(), static_cast<int64_t>(size)));
      }
    });
  }

  void copy(const std::string& name, const std::string& to) override {
    const OpenedUri from = open(name), there = open(to);
    const fs::FileInfo info = take(from.system->GetFileInfo(from.path), "looking for an object");
    if (info.size() < kMostCopied)
      return check(from.system->CopyFile(from.path, there.path), "copying an object");
    write(to, [&](arrow::io::OutputStream& out) {
      arrow::Status status;
      read(from, [&](const char* data, size_t size) {
        if (status.ok()) status = out.Write(data, static_cast<int64_t>(size));
      });
      return status;
    });
  }

  void remove(const std::string& name) override {
    const OpenedUri at = open(name);
    const fs::FileInfo info = take(at.system->GetFileInfo(at.path), "looking for an object");
    if (info.IsFile()) check(at.system->DeleteFile(at.path), "deleting an object");
  }

  void remove_folder(const std::string& name) override {
    const OpenedUri at = open(name);
    const fs::FileInfo info = take(at.system->GetFileInfo(at.path), "looking for a folder");
    if (info.type() == fs::FileType::Directory)
      check(at.system->DeleteDir(at.path), "deleting a folder");
  }

 private:
  void check(const arrow::Status& status, const char* doing) const {
    if (!status.ok()) fail(address_, doing, status.ToString());
  }
  template <typename T>
  T take(arrow::Result<T> result, const char* doing) const {
    check(result.status(), doing);
    return std::move(result).ValueOrDie();
  }

  OpenedUri open(const std::string& name) const {
    try {
      return open_arrow_uri(address_ + (name.empty() ? "" : "/" + name) + query_);
    } catch (const UserError& e) {  // also where a region was asked for and the network is away
      if (has_any(e.what(), {"NETWORK_CONNECTION", "curlCode", "Could not connect", "resolve"}))
        fail(address_, "connecting", e.what());
      throw;
    }
  }

  void check_bucket(const OpenedUri& base) const {
    const std::string bucket = base.path.substr(0, base.path.find('/'));
    const fs::FileInfo info = take(base.system->GetFileInfo(bucket), "looking for the bucket");
    if (info.type() != fs::FileType::NotFound) return;
    throw UserError(fmt::format("storage {}: there is no bucket {}", address_, bucket),
                    "create the bucket, or correct storage");
  }

  template <typename Fn>
  void read(const OpenedUri& at, const Fn& fn) const {
    const auto in = take(at.system->OpenInputStream(at.path), "opening an object");
    std::vector<char> block(kBlockBytes);
    for (;;) {
      const int64_t size =
          take(in->Read(static_cast<int64_t>(block.size()), block.data()), "reading an object");
      if (size == 0) return;
      fn(block.data(), static_cast<size_t>(size));
    }
  }

  // A stream that is destroyed completes its object: one that failed must be aborted.
  template <typename Fn>
  void write(const std::string& name, const Fn& fn) const {
    const OpenedUri at = open(name);
    const auto out = take(at.system->OpenOutputStream(at.path), "writing an object");
    try {
      check(fn(*out), "writing an object");
      check(out->Close(), "writing an object");
    } catch (...) {
      static_cast<void>(out->Abort());
      throw;
    }
  }

  std::string address_, query_;
};

}  // namespace

std::unique_ptr<ObjectStore> open_object_store(const std::string& address) {
  if (!address.starts_with("s3://")) {
    throw UserError(fmt::format("storage {}: only s3:// is known", address),
                    "set storage to s3://BUCKET/PREFIX, or to a folder");
  }
  require(address.size() > 5 && address[5] != '/' && address[5] != '?',
          "storage {} names no bucket, wanted s3://BUCKET/PREFIX", address);
  return std::make_unique<S3Store>(address);
}

}  // namespace weft
