// io/file_system.h: files that are not local: s3://, and every URI that Arrow's file systems know.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/byte_stream.h"

namespace weft {

struct FileInfo {
  std::string path;  // as it can be opened
  int64_t size = 0;
  int64_t time_ns = 0;  // of the last change of the content; 0: unknown
  // Identify a local file among files of the same name, size and time. They are not compared on a
  // resume, because a restored file has other values.
  uint64_t inode = 0;
  int64_t status_time_ns = 0;  // ctime: cannot be set
  bool operator==(const FileInfo& o) const {
    return path == o.path && size == o.size && time_ns == o.time_ns;
  }
};

inline bool is_uri(std::string_view path) { return path.find("://") != std::string_view::npos; }

// Of a local file or a URI. UserError where it does not exist.
FileInfo file_info(const std::string& path);

// The rest is for URIs. A build without Arrow refuses them (io/no_arrow).
FileInfo uri_info(const std::string& uri);
// The files below a URI, or that match one with * or ? in its last parts; sorted by name.
std::vector<FileInfo> list_uri(const std::string& uri);
std::unique_ptr<ByteStream> open_uri(const std::string& uri);
void write_uri(const std::string& uri, std::string_view bytes);  // whole, or RunError

}  // namespace weft
