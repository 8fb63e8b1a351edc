// train/mirror.h: the local folder that stands for a run in an object store, and what it knows.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace weft {

inline constexpr const char* kMirrorState = ".mirror.json";
// Of a run on several nodes: what its agents prove to know, and a file that all nodes must see.
inline constexpr const char *kSecretFile = "secret", *kNodesMarker = ".nodes";

// Its contents: who wrote the mirror, and what of it is in the store.
struct MirrorState {
  // Of the last session that brought the mirror and the store in step, and of the one that has
  // begun since: the mirror is current where the store's lock has one of them. Empty: none.
  std::string token, next_token;
  std::set<std::string> pushed;  // folders: checkpoints/step-00000010, checkpoints/best, final
  std::string best, final;       // fingerprints of these two when they were pushed or pulled
};
MirrorState read_mirror_state(const std::filesystem::path& mirror);  // unreadable: as new
void write_mirror_state(const std::filesystem::path& mirror, const MirrorState& state);

// Names, sizes and times of a folder's files; empty where there is none. Two that are equal are the
// same files.
std::string folder_fingerprint(const std::filesystem::path& folder);

// Below `fallback`, or below the cache folder where that is empty; named by the address.
std::filesystem::path mirror_of(const std::string& address, const std::string& fallback);

// Whether an address is of an object store.
bool is_remote(const std::string& path);
// s3://bucket/prefix of s3://bucket/prefix/?region=...
std::string without_query(const std::string& address);
// The address of a run below s3://bucket/prefix?query.
std::string join_address(const std::string& storage, const std::string& name);

}  // namespace weft
