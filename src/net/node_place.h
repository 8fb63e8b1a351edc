// net/node_place.h: where a rank is in a run on several nodes.
#pragma once

#include <filesystem>
#include <string>

namespace weft {

struct NodePlace {
  int first_rank = 0;                 // of this node, whose ranks follow each other
  int num_ranks = 1;                  // of all nodes
  std::string store;                  // "10.0.0.1:4711", of this generation
  std::string host = "127.0.0.1";     // this node's address, on which its ranks listen
  std::filesystem::path secret_file;  // of the run; the store asks for it
};

}  // namespace weft
