// checkpoint/replace_folder.cpp: rename, or exchange two names and delete the older.
#include "checkpoint/replace_folder.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

fs::path old_folder(const fs::path& place) { return place.string() + ".old"; }

fs::path parent_of(const fs::path& place) {
  return place.has_parent_path() ? place.parent_path() : ".";
}

bool is_there(const fs::path& path) { return path_kind(path) != PathKind::kNothing; }

// `made` is in place; the old folder only occupies space.
void remove_replaced(const fs::path& old) {
  std::error_code fault;
  fs::remove_all(old, fault);
  if (fault)
    log_warning("{} was replaced but could not be deleted: {}", old.string(), fault.message());
}

// For file systems that cannot exchange two names.
void replace_in_two_moves(const fs::path& made, const fs::path& place) {
  const fs::path old = old_folder(place);
  remove_folder(old);
  move_folder(place, old);
  try {
    move_folder(made, place);
  } catch (...) {
    recover_replaced(place);
    throw;
  }
}

}  // namespace

void move_folder(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  throw RunError(
      fmt::format("cannot rename {} to {}: {}", from.string(), to.string(), std::strerror(errno)));
}

void make_folder(const fs::path& path) {
  std::error_code fault;
  fs::create_directories(path, fault);
  if (fault) {
    throw RunError(fmt::format("cannot create the folder {}: {}", path.string(), fault.message()));
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
  if (is_there(place) || !is_there(old)) return;
  move_folder(old, place);
  sync_directory(parent_of(place));
}

void replace_folder(const fs::path& made, const fs::path& place) {
  const fs::path parent = parent_of(place);
  recover_replaced(place);
  if (!is_there(place)) {
    move_folder(made, place);
    return sync_directory(parent);
  }
  const bool exchanged =
      ::renameat2(AT_FDCWD, made.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE) == 0;
  if (!exchanged) replace_in_two_moves(made, place);
  sync_directory(parent);
  remove_replaced(exchanged ? made : old_folder(place));
}

}  // namespace weft
