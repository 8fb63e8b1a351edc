// base/path.h: what is at a path, where "nothing" is never confused with "not known".
//
// std::filesystem's calls with an error code return false for both. Here every system error
// (EACCES, EIO, EMFILE, ESTALE ...) is a RunError that names path and reason.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace weft {

enum class PathKind { kNothing, kFile, kFolder, kOther };

// Links are followed; a dangling one is a RunError, since its disk may come back.
PathKind path_kind(const std::filesystem::path& path);

// The names in a folder, sorted; empty where there is no such folder.
std::vector<std::string> folder_names(const std::filesystem::path& folder);

// NAME, or NAME-2, -3 ...: the first that is not in use.
std::string unused_name(const std::string& name,
                        const std::function<bool(const std::string&)>& is_used);
std::filesystem::path unused_path(const std::filesystem::path& path);  // where nothing is

// open(2) for a regular file, without blocking: returns a descriptor, or -1 with errno. UserError
// where the path is a FIFO, a socket, a device or a folder, which could block a read or write.
int open_plain_file(const std::filesystem::path& path, int flags, unsigned mode = 0);

// RunError: "cannot <what> <path>: <reason of errno value>", with a hint for the common reasons.
[[noreturn]] void throw_refused(const char* what, const std::filesystem::path& path, int reason);

}  // namespace weft
