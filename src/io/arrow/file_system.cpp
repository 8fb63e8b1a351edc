// io/arrow/file_system.cpp: s3:// and the other file systems that Arrow opens by URI.
//
// Arrow's S3 is a separate library, loaded on the first s3:// URI from libarrow's folder: programs
// that read local files do not pay for it.
#include "io/file_system.h"

#include <arrow/buffer.h>
#include <arrow/config.h>
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/file.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/config.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/mapped_files.h"
#include "io/arrow/arrow_files.h"
#include "io/glob.h"

namespace weft {
namespace {

namespace fs = arrow::fs;

// The parts of a URI: scheme://authority/path?query.
struct Uri {
  std::string before, path, query;  // "s3://", "bucket/a/b", "?region=..." or empty
};

Uri cut_uri(const std::string& uri) {
  const size_t path = uri.find("://") + 3, query = std::min(uri.find('?'), uri.size());
  return {uri.substr(0, path), uri.substr(path, query - path), uri.substr(query)};
}

std::string library_folder() {
  Dl_info info{};
  const auto* symbol = reinterpret_cast<const void*>(&arrow::GetBuildInfo);
  if (dladdr(symbol, &info) == 0 || !info.dli_fname) return "";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

// One file system per (scheme, bucket or host, query): opening S3's needs the network.
struct Systems {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<fs::FileSystem>> known;
};

Systems& systems() {
  static Systems all;
  return all;
}

void load_s3(const std::string& uri) {
  static bool is_loaded = false;  // under the mutex
  if (is_loaded) return;
  const std::string library =
      fmt::format("{}libarrow_s3.so.{}", library_folder(), ARROW_VERSION_MAJOR * 100);
  check_arrow(fs::LoadFileSystemFactories(library.c_str()), uri, "loading " + library);
  is_loaded = true;
}

// S3 must be finalized before its own statics are destroyed: so this is constructed after its first
// use, successful or not.
void finish_at_exit() {
  struct Finish {
    Finish() { systems(); }
    ~Finish() {
      systems().known.clear();
      fs::EnsureFinalized();
    }
    Finish(const Finish&) = delete;
    Finish& operator=(const Finish&) = delete;
  };
  static const Finish finish;
}

// Transient errors (a broken connection, a busy server) are retried after 0.1, 0.2, 0.4 ...
// seconds: 6.3 seconds in all.
class BackOff : public fs::S3RetryStrategy {
 public:
  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted_retries) override {
    return error.should_retry && attempted_retries < 6;
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail&, int64_t attempted_retries) override {
    return int64_t{100} << std::min<int64_t>(attempted_retries, 6);
  }
};

std::shared_ptr<fs::FileSystem> make_system(const std::string& uri) {
  constexpr const char* kDoing = "opening the file system";
  if (!uri.starts_with("s3://")) return take_arrow(fs::FileSystemFromUri(uri), uri, kDoing);
  load_s3(uri);
  const std::shared_ptr<fs::S3RetryStrategy> retry = std::make_shared<BackOff>();
  return take_arrow(fs::FileSystemFromUriAndOptions(uri, {{"retry_strategy", retry}}), uri, kDoing);
}

}  // namespace

OpenedUri open_arrow_uri(const std::string& uri) {
  const std::lock_guard lock(systems().mutex);
  const Uri parts = cut_uri(uri);
  const std::string key = parts.before + parts.path.substr(0, parts.path.find('/')) + parts.query;
  auto& system = systems().known[key];
  if (!system) {
    try {
      system = make_system(uri);
    } catch (...) {
      finish_at_exit();
      throw;
    }
    finish_at_exit();
  }
  return {system, take_arrow(system->PathFromUri(uri), uri, "reading the address")};
}

namespace {

FileInfo info_of(const fs::FileInfo& info, std::string uri) {
  return {std::move(uri), info.size(), info.mtime().time_since_epoch().count(), 0, 0};
}

class UriStream : public ByteStream {
 public:
  UriStream(std::shared_ptr<arrow::io::InputStream> stream, std::string uri)
      : stream_(std::move(stream)), uri_(std::move(uri)) {}
  size_t read(char* out, size_t size) override {
    return static_cast<size_t>(
        take_arrow(stream_->Read(static_cast<int64_t>(size), out), uri_, "reading"));
  }

 private:
  std::shared_ptr<arrow::io::InputStream> stream_;
  std::string uri_;
};

}  // namespace

FileInfo uri_info(const std::string& uri) {
  const OpenedUri at = open_arrow_uri(uri);
  const fs::FileInfo info = take_arrow(at.system->GetFileInfo(at.path), uri, "looking for it");
  require(info.type() != fs::FileType::NotFound, "there is no {}", uri);
  require(info.IsFile(), "{} is not a file", uri);
  return info_of(info, uri);
}

std::vector<FileInfo> list_uri(const std::string& uri) {
  const Uri parts = cut_uri(uri);
  const size_t star = parts.path.find('*');
  if (star == std::string::npos) {
    const OpenedUri at = open_arrow_uri(uri);
    const fs::FileInfo info = take_arrow(at.system->GetFileInfo(at.path), uri, "looking for it");
    if (info.IsFile()) return {info_of(info, uri)};
    require(info.type() == fs::FileType::Directory, "there is no {}", uri);
  }
  // A pattern is matched against everything below the folder that precedes its first star.
  const std::string folder = parts.path.substr(0, parts.path.rfind('/', star));
  const std::string below = star == std::string::npos ? parts.path : folder;
  const OpenedUri at = open_arrow_uri(parts.before + below + parts.query);
  fs::FileSelector selector;
  selector.base_dir = at.path;
  selector.recursive = true;
  std::vector<FileInfo> found;
  const std::string local =
      at.path.substr(0, at.path.size() - std::min(at.path.size(), below.size()));
  for (const fs::FileInfo& info :
       take_arrow(at.system->GetFileInfo(selector), uri, "listing the files")) {
    const std::string path = info.path().substr(local.size());
    const bool matches = star == std::string::npos || glob_matches(parts.path, path);
    if (info.IsFile() && matches) found.push_back(info_of(info, parts.before + path + parts.query));
  }
  std::sort(found.begin(), found.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
  return found;
}

std::unique_ptr<ByteStream> open_uri(const std::string& uri) {
  const OpenedUri at = open_arrow_uri(uri);
  return std::make_unique<UriStream>(
      take_arrow(at.system->OpenInputStream(at.path), uri, "opening it"), uri);
}

void write_uri(const std::string& uri, std::string_view bytes) {
  const auto check = [&uri](const arrow::Status& status) {
    if (!status.ok()) throw RunError(fmt::format("cannot write {}: {}", uri, status.ToString()));
  };
  const OpenedUri at = open_arrow_uri(uri);
  auto out = at.system->OpenOutputStream(at.path);
  check(out.status());
  check((*out)->Write(bytes.data(), static_cast<int64_t>(bytes.size())));
  check((*out)->Close());
}

namespace {

// Watched, as our own mappings are (base/mapped_files.h): a truncated file does not end in SIGBUS.
std::shared_ptr<arrow::io::RandomAccessFile> open_mapped(const std::string& path) {
  auto file = take_arrow(arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ), path,
                         "opening the file");
  const int64_t size = take_arrow(file->GetSize(), path, "opening the file");
  if (size == 0) return file;
  const void* at = take_arrow(file->ReadAt(0, size), path, "mapping the file")->data();
  watch_mapping(at, static_cast<size_t>(size), path);
  return {file.get(), [file, at](auto*) { unwatch_mapping(at); }};
}

}  // namespace

std::shared_ptr<arrow::io::RandomAccessFile> open_arrow_file(const std::string& path,
                                                             FileAccess access) {
  if (!is_uri(path) && access == FileAccess::kRead) {
    return take_arrow(arrow::io::ReadableFile::Open(path), path, "opening the file");
  }
  if (!is_uri(path)) return open_mapped(path);
  const OpenedUri at = open_arrow_uri(path);
  return take_arrow(at.system->OpenInputFile(at.path), path, "opening it");
}

}  // namespace weft
