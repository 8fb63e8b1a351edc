// launch/rendezvous_file.h: a file next to the run directory in which the first process of a run
// says where it listens, for those that somebody else starts (docs/design/0020-engines.md).
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace weft {

struct RendezvousFile {
  std::string launch;    // of which start; others ignore it
  std::string endpoint;  // "10.0.0.1:4711"
  std::string secret;    // its text, or its file's path
};

// runs/first -> runs/.first.rendezvous
std::filesystem::path rendezvous_path(const std::filesystem::path& run_dir);

// Of mode 0600; replaces what is there, at once. UserError where it cannot be written.
void write_rendezvous(const std::filesystem::path& path, const RendezvousFile& file);
// None where it is absent or not whole. UserError where anyone but its owner may read it.
std::optional<RendezvousFile> read_rendezvous(const std::filesystem::path& path);
// Removes it where it is still this one.
void remove_rendezvous(const std::filesystem::path& path, const RendezvousFile& file) noexcept;

}  // namespace weft
