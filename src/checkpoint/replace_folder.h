// checkpoint/replace_folder.h: a finished folder put in the place of another in one move.
#pragma once

#include <filesystem>
#include <string_view>

namespace weft {

// `made` becomes `place`; what stood there is deleted. A crash at any moment leaves the old folder
// or the new one at `place` where the file system can exchange two names (ext4, xfs, btrfs, tmpfs);
// elsewhere there is a moment when the old one stands at place.old, from where recover_replaced
// brings it back. RunError where it fails.
void replace_folder(const std::filesystem::path& made, const std::filesystem::path& place);

// Undoes the half of a replacement that a crash cut short; only for the one who writes `place`.
// A place.old beside a whole `place` is deleted by the next replacement.
void recover_replaced(const std::filesystem::path& place);

// A new file, on the disk when this returns; for folders that are renamed as a whole.
void write_synced(const std::filesystem::path& path, std::string_view text);

// As std::filesystem, but RunError naming the path.
void move_folder(const std::filesystem::path& from, const std::filesystem::path& to);
void make_folder(const std::filesystem::path& path);
void remove_folder(const std::filesystem::path& path);

}  // namespace weft
