// checkpoint/replace_folder.cpp: rename, or exchange two names and delete the older.
#include "checkpoint/replace_folder.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void move(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw RunError(
      fmt::format("cannot rename {} to {}: {}", from.string(), to.string(), std::strerror(errno)));
}

fs::path old_folder(const fs::path& place) { return place.string() + ".old"; }

fs::path parent_of(const fs::path& place) {
  return place.has_parent_path() ? place.parent_path() : ".";
}

}  // namespace

void make_folder(const fs::path& path) {
  std::error_code fault;
  fs::create_directories(path, fault);
  if (fault) {
    throw RunError(fmt::format("cannot make the folder {}: {}", path.string(), fault.message()));
  }
}

void remove_folder(const fs::path& path) {
  std::error_code fault;
  fs::remove_all(path, fault);
  if (fault) {
    throw RunError(fmt::format("cannot delete {}: {}", path.string(), fault.message()));
  }
}

void write_synced(const fs::path& path, std::string_view text) {
  FileWriter out(path, FileWriter::Mode::kTruncate);
  out.write(text);
  out.sync();
}

void recover_replaced(const fs::path& place) {
  const fs::path old = old_folder(place);
  std::error_code absent;
  if (fs::exists(place, absent) || !fs::exists(old, absent)) return;
  move(old, place);
  sync_directory(parent_of(place));
}

void replace_folder(const fs::path& made, const fs::path& place) {
  const fs::path parent = parent_of(place);
  recover_replaced(place);
  if (!fs::exists(place)) {
    move(made, place);
  } else if (::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0) {
    sync_directory(parent);
    remove_folder(made);
  } else {
    const fs::path old = old_folder(place);
    remove_folder(old);
    move(place, old);
    move(made, place);
    sync_directory(parent);
    remove_folder(old);
  }
  sync_directory(parent);
}

}  // namespace weft
