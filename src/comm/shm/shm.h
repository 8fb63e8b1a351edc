// comm/shm/shm.h: a group of ranks that are processes or threads of one machine.
#pragma once

#include <memory>

#include "comm/comm.h"
#include "net/shm_world.h"

namespace weft {

// This rank's handle on the group of all ranks of the world; created once per rank. Data in an
// arena of the world (ShmWorld::take_arena) is read by the peers in place; other data goes through
// a staging area, at more than twice the traffic.
std::unique_ptr<Comm> make_shm_comm(std::shared_ptr<ShmWorld> world, int rank);

}  // namespace weft
