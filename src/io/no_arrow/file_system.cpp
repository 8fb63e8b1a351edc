// io/no_arrow/file_system.cpp: a build without Arrow opens local files only.
#include "io/file_system.h"

#include "base/error.h"

namespace weft {
namespace {

[[noreturn]] void refuse(const std::string& uri) {
  throw UserError(fmt::format("{}: this build opens only local files", uri),
                  "build with -DWEFT_ARROW=ON, or copy the file here");
}

}  // namespace

FileInfo uri_info(const std::string& uri) { refuse(uri); }
std::vector<FileInfo> list_uri(const std::string& uri) { refuse(uri); }
std::unique_ptr<ByteStream> open_uri(const std::string& uri) { refuse(uri); }
void write_uri(const std::string& uri, std::string_view) { refuse(uri); }

}  // namespace weft
