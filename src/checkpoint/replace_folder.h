// checkpoint/replace_folder.h: replaces a folder by a finished one atomically.
#pragma once

#include <filesystem>
#include <string_view>

namespace weft {

// `made` becomes `place`; the old folder is deleted. A crash at any time leaves the old folder or
// the new one at `place` where the file system can exchange two names (ext4, xfs, btrfs, tmpfs);
// elsewhere the old one is briefly at place.old, from where recover_replaced restores it. RunError
// where it fails.
void replace_folder(const std::filesystem::path& made, const std::filesystem::path& place);

// Undoes a replacement that a crash interrupted; only for the writer of `place`. A place.old next
// to a complete `place` is deleted by the next replacement.
void recover_replaced(const std::filesystem::path& place);

// A new file, synced when this returns; for folders that are renamed as a whole.
void write_synced(const std::filesystem::path& path, std::string_view text);

// As std::filesystem, but RunError naming the path.
void move_folder(const std::filesystem::path& from, const std::filesystem::path& to);
void make_folder(const std::filesystem::path& path);
void remove_folder(const std::filesystem::path& path);

}  // namespace weft
