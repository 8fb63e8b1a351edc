// tests/faults/rules.h: which call on which path fails, and how: the rules of WEFT_TEST_FAULTS.
//
//   WEFT_TEST_FAULTS = RULE[;RULE]...
//   RULE = CALL:HOW:PATH[:NTH[:COUNT]]      calls of this kind on paths that contain PATH; from the
//                                           NTH such call on (1), COUNT times (0: for ever, the
//                                           default)
//        | space:BYTES:PATH                 a disk that is full once these files have BYTES
//        | random:SEED:PROBABILITY:PATH[:COUNT]   any call but close, by chance, COUNT times at
//        most
//   CALL = open opendir readdir stat mkdir rename unlink write fsync truncate fallocate mmap read
//          close, or * for all; preload_library.cpp has the functions of each kind
//   HOW  = an error's name (EACCES, EIO, ...), `short` (half of the bytes; read and write), KILL
//          (the process kills itself with SIGKILL in place of the call), or waitMS (the call is
//          made after that many milliseconds: a slow disk)
//
// Calls are counted per process. Each fault that fires is one line of the file named by
// WEFT_TEST_FAULTS_LOG: process, call, how, path. An invalid rule ends the process with 99.
// Everything here is async-signal-safe: no lock, no allocation.
#pragma once

#include <cstddef>

namespace weft::faults {

enum class Kind {
  kOpen,
  kOpendir,
  kReaddir,
  kStat,
  kMkdir,
  kRename,
  kUnlink,
  kWrite,
  kFsync,
  kTruncate,
  kAllocate,
  kMmap,
  kRead,
  kClose,
};

enum class Action { kNone, kFail, kShorten };

struct Fault {
  Action action = Action::kNone;
  int error = 0;     // kFail: errno
  size_t bytes = 0;  // kShorten: how many are read or written
};

// The absolute path of a call's argument, resolved only where some rule needs it.
class PathName {
 public:
  explicit PathName(int fd) : folder_(fd), path_(nullptr) {}
  PathName(int folder, const char* path) : folder_(folder), path_(path) {}
  // False where there is none: a descriptor that is not open.
  bool find(char* out, size_t size) const;

 private:
  int folder_;  // of a relative path, or the descriptor itself
  const char* path_;
};

Fault decide(Kind kind, const PathName& path, size_t bytes = 0);
Fault decide(Kind kind, const PathName& path, const PathName& other);

}  // namespace weft::faults
