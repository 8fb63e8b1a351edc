// train/store_listing.h: the folders of a run in an object store, from a list of its objects.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/object_store.h"

namespace weft {

// The files of a run that are not below a folder. events.jsonl is last: it names the others.
inline constexpr const char* kRecordFiles[] = {
    "run.yaml", "metrics.jsonl", "metrics.jsonl.abandoned", "tensor_hashes.jsonl", "loss.png",
    "loss.svg", "events.jsonl"};

// A checkpoint, best or final: complete where its last object is there.
struct StoredFolder {
  std::string name;   // checkpoints/step-00000010
  int64_t step = -1;  // of a step-N, else -1
  bool is_complete = false;
  std::map<std::string, int64_t> sizes;  // by file below it
};

struct StoreListing {
  std::map<std::string, int64_t> files;         // run.yaml, metrics.jsonl ...: not below a folder
  std::map<std::string, StoredFolder> folders;  // by name
  const StoredFolder* find(const std::string& name) const;
  std::vector<const StoredFolder*> steps() const;  // complete step-N, oldest first
};

StoreListing read_listing(const std::vector<StoredObject>& objects);

// The object that is put last and removed first: COMMITTED, or config.json of final.
std::string last_file_of(const std::string& folder);

}  // namespace weft
