// tests/faults/rules.cpp: reads the rules once, when the library is loaded, and judges each call.
#include "tests/faults/rules.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace weft::faults {
namespace {

constexpr size_t kMaxPath = 4096, kMaxPart = 256, kMaxRules = 32;
constexpr int kKill = -1, kShort = -2, kWait = -3;  // in place of an errno

constexpr const char* kKinds[] = {"open",      "opendir", "readdir", "stat",  "mkdir",
                                  "rename",    "unlink",  "write",   "fsync", "truncate",
                                  "fallocate", "mmap",    "read",    "close"};
constexpr size_t kNumKinds = sizeof kKinds / sizeof *kKinds;

struct NamedError {
  const char* name;
  int error;
};
constexpr NamedError kErrors[] = {
    {"EACCES", EACCES}, {"EBADF", EBADF},   {"EDQUOT", EDQUOT}, {"EINTR", EINTR},
    {"EINVAL", EINVAL}, {"EIO", EIO},       {"EMFILE", EMFILE}, {"ENFILE", ENFILE},
    {"ENODEV", ENODEV}, {"ENOENT", ENOENT}, {"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC},
    {"EPERM", EPERM},   {"EROFS", EROFS},   {"ESTALE", ESTALE}, {"ETIMEDOUT", ETIMEDOUT},
    {"KILL", kKill},    {"short", kShort},  {"wait", kWait}};

struct Rule {
  enum class Form { kCall, kSpace, kRandom } form = Form::kCall;
  unsigned kinds = 0;  // one bit each
  int error = 0;
  char part[kMaxPart] = {};
  long nth = 1, count = 0, wait_ms = 0;
  uint64_t seed = 0;
  double probability = 0;
  std::atomic<long> seen{0}, fired{0}, space{0};
};

Rule rules[kMaxRules];
std::atomic<size_t> num_rules{0};
std::atomic<unsigned> watched{0};  // kinds that some rule covers
char log_path[kMaxPath] = {};

unsigned bit(Kind kind) { return 1u << static_cast<unsigned>(kind); }

[[noreturn]] void refuse(const char* rule, const char* why) {
  char text[512];
  const int size =
      std::snprintf(text, sizeof text, "weft_fault_preload: rule \"%.200s\": %s\n", rule, why);
  [[maybe_unused]] const long put = ::syscall(SYS_write, 2, text, size);
  ::_exit(99);
}

// --- reading the rules ---

unsigned kinds_of(const char* rule, const char* word) {
  if (std::strcmp(word, "*") == 0) return (1u << kNumKinds) - 1;
  for (size_t i = 0; i < kNumKinds; ++i) {
    if (std::strcmp(word, kKinds[i]) == 0) return 1u << i;
  }
  refuse(rule, "no such call");
}

int error_of(const char* rule, const char* word) {
  for (const NamedError& e : kErrors) {
    if (std::strcmp(word, e.name) == 0) return e.error;
  }
  refuse(rule, "no such error");
}

double number_of(const char* rule, const char* word) {
  char* end = nullptr;
  const double value = std::strtod(word, &end);
  if (end == word || *end != '\0' || value < 0) refuse(rule, "not a number");
  return value;
}

struct Words {
  char text[kMaxPath];  // the rule as it was given
  char* at[6];
  size_t count;
};

void split(char* text, Words& words) {
  std::snprintf(words.text, sizeof words.text, "%s", text);
  words.count = 0;
  for (char* at = text; at; ++words.count) {
    if (words.count == 6) refuse(words.text, "too many parts");
    words.at[words.count] = at;
    at = std::strchr(at, ':');
    if (at) *at++ = '\0';
  }
  if (words.count < 3) refuse(words.text, "want CALL:HOW:PATH");
}

void read_call(const Words& words, Rule& rule) {
  if (words.count > 5) refuse(words.text, "want CALL:HOW:PATH[:NTH[:COUNT]]");
  rule.kinds = kinds_of(words.text, words.at[0]);
  if (std::strncmp(words.at[1], "wait", 4) == 0) {
    rule.error = kWait;
    rule.wait_ms = static_cast<long>(number_of(words.text, words.at[1] + 4));
  } else {
    rule.error = error_of(words.text, words.at[1]);
  }
  if (rule.error == kShort && (rule.kinds & ~(bit(Kind::kRead) | bit(Kind::kWrite))) != 0) {
    refuse(words.text, "only read and write can be short");
  }
  if (words.count > 3) rule.nth = static_cast<long>(number_of(words.text, words.at[3]));
  if (words.count > 4) rule.count = static_cast<long>(number_of(words.text, words.at[4]));
}

void read_space(const Words& words, Rule& rule) {
  if (words.count != 3) refuse(words.text, "want space:BYTES:PATH");
  rule.form = Rule::Form::kSpace;
  rule.kinds = bit(Kind::kWrite);
  rule.space = static_cast<long>(number_of(words.text, words.at[1]));
}

void read_random(const Words& words, Rule& rule) {
  if (words.count < 4 || words.count > 5) {
    refuse(words.text, "want random:SEED:PROBABILITY:PATH[:COUNT]");
  }
  rule.form = Rule::Form::kRandom;
  rule.kinds = kinds_of(words.text, "*") & ~bit(Kind::kClose);
  rule.seed = static_cast<uint64_t>(number_of(words.text, words.at[1]));
  rule.probability = number_of(words.text, words.at[2]);
  if (words.count == 5) rule.count = static_cast<long>(number_of(words.text, words.at[4]));
}

void read_rule(char* text) {
  Words words;
  split(text, words);
  const size_t index = num_rules.load();
  if (index == kMaxRules) refuse(words.text, "too many rules");
  Rule& rule = rules[index];
  const bool is_random = std::strcmp(words.at[0], "random") == 0;
  if (is_random) {
    read_random(words, rule);
  } else if (std::strcmp(words.at[0], "space") == 0) {
    read_space(words, rule);
  } else {
    read_call(words, rule);
  }
  const char* path = words.at[is_random ? 3 : 2];
  if (std::strlen(path) >= kMaxPart) refuse(words.text, "the path is too long");
  std::strcpy(rule.part, path);
  num_rules = index + 1;
  watched |= rule.kinds;
}

__attribute__((constructor)) void read_rules() {
  if (const char* log = ::getenv("WEFT_TEST_FAULTS_LOG")) {
    std::snprintf(log_path, sizeof log_path, "%s", log);
  }
  const char* given = ::getenv("WEFT_TEST_FAULTS");
  if (!given) return;
  char text[kMaxPath];
  if (std::strlen(given) >= sizeof text) refuse(given, "the rules are too long");
  std::strcpy(text, given);
  for (char* at = text; at && *at;) {
    char* end = std::strchr(at, ';');
    if (end) *end++ = '\0';
    if (*at) read_rule(at);
    at = end;
  }
}

// --- judging a call ---

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// By path, kind and the number of such calls: thread scheduling changes little.
uint64_t draw(const Rule& rule, Kind kind, const char* path, long seen) {
  uint64_t h = mix(rule.seed + static_cast<uint64_t>(seen) * 64 + static_cast<uint64_t>(kind));
  for (const char* at = path; *at; ++at) h = mix(h ^ static_cast<unsigned char>(*at));
  return h;
}

// Errors that such a call can really return.
int likely_error(Kind kind, uint64_t h) {
  constexpr int kOpens[] = {EACCES, EMFILE, EIO, ESTALE};
  constexpr int kChanges[] = {EACCES, ENOSPC, EIO, EROFS};
  constexpr int kWrites[] = {ENOSPC, EIO, EDQUOT, kShort};
  constexpr int kReads[] = {EIO, kShort, EINTR, ESTALE};
  switch (kind) {
    case Kind::kOpen:
    case Kind::kOpendir:
      return kOpens[h % 4];
    case Kind::kMkdir:
    case Kind::kRename:
    case Kind::kUnlink:
      return kChanges[h % 4];
    case Kind::kWrite:
      return kWrites[h % 4];
    case Kind::kRead:
      return kReads[h % 4];
    case Kind::kStat:
      return h % 2 ? EACCES : EIO;
    case Kind::kTruncate:
    case Kind::kAllocate:
      return h % 2 ? ENOSPC : EIO;
    case Kind::kMmap:
      return h % 2 ? ENOMEM : EIO;
    default:
      return EIO;
  }
}

// One line, written at once: processes append to the same file.
void log_fault(Kind kind, int error, const char* path) {
  if (!log_path[0]) return;
  const char* how = "?";
  for (const NamedError& e : kErrors) {
    if (e.error == error) how = e.name;
  }
  char line[kMaxPath + 64];
  int size = std::snprintf(line, sizeof line, "%d %s %s %s\n", static_cast<int>(::getpid()),
                           kKinds[static_cast<size_t>(kind)], how, path);
  if (size >= static_cast<int>(sizeof line)) size = static_cast<int>(sizeof line) - 1;
  const long fd =
      ::syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  ::syscall(SYS_write, fd, line, size);
  ::syscall(SYS_close, fd);
}

Fault fire(Kind kind, int error, const char* path, size_t bytes) {
  log_fault(kind, error, path);
  if (error == kKill) ::kill(::getpid(), SIGKILL);
  if (error == kShort) return {Action::kShorten, 0, (bytes + 1) / 2};
  return {Action::kFail, error, 0};
}

Fault wait(const Rule& rule, Kind kind, const char* path) {
  log_fault(kind, kWait, path);
  timespec left{rule.wait_ms / 1000, rule.wait_ms % 1000 * 1000000};
  while (::syscall(SYS_nanosleep, &left, &left) != 0 && errno == EINTR) {
  }
  return {};
}

Fault judge_space(Rule& rule, const char* path, size_t bytes) {
  const long before = rule.space.fetch_sub(static_cast<long>(bytes));
  if (before >= static_cast<long>(bytes)) return {};
  rule.space = 0;
  if (before <= 0) return fire(Kind::kWrite, ENOSPC, path, bytes);
  log_fault(Kind::kWrite, kShort, path);
  return {Action::kShorten, 0, static_cast<size_t>(before)};
}

Fault judge(Rule& rule, Kind kind, const char* path, size_t bytes) {
  if (rule.form == Rule::Form::kSpace) return judge_space(rule, path, bytes);
  const long seen = rule.seen.fetch_add(1) + 1;
  int error = rule.error;
  if (rule.form == Rule::Form::kRandom) {
    const uint64_t h = draw(rule, kind, path, seen);
    if (static_cast<double>(h >> 11) * 0x1p-53 >= rule.probability) return {};
    error = likely_error(kind, h);
  } else if (seen < rule.nth) {
    return {};
  }
  if (rule.count > 0 && rule.fired.fetch_add(1) >= rule.count) return {};
  if (error == kWait) return wait(rule, kind, path);
  return fire(kind, error, path, bytes);
}

Fault judge_path(Kind kind, const char* path, size_t bytes) {
  const size_t count = num_rules.load(std::memory_order_acquire);
  for (size_t i = 0; i < count; ++i) {
    if ((rules[i].kinds & bit(kind)) == 0 || !std::strstr(path, rules[i].part)) continue;
    const Fault fault = judge(rules[i], kind, path, bytes);
    if (fault.action != Action::kNone) return fault;
  }
  return {};
}

bool is_watched(Kind kind) { return (watched.load(std::memory_order_relaxed) & bit(kind)) != 0; }

}  // namespace

bool PathName::find(char* out, size_t size) const {
  size_t used = 0;
  if (!path_ || (path_[0] != '/' && folder_ != AT_FDCWD)) {
    char link[32];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", folder_);
    const long got = ::syscall(SYS_readlinkat, AT_FDCWD, link, out, size - 1);
    if (got < 0) return false;
    used = static_cast<size_t>(got);
  } else if (path_[0] != '/') {
    const long got = ::syscall(SYS_getcwd, out, size - 1);
    if (got < 1) return false;
    used = static_cast<size_t>(got) - 1;  // without the zero that the kernel counts
  }
  out[used] = '\0';
  if (path_) std::snprintf(out + used, size - used, "%s%s", used > 0 ? "/" : "", path_);
  return true;
}

Fault decide(Kind kind, const PathName& path, size_t bytes) {
  if (!is_watched(kind)) return {};
  const int kept = errno;
  char name[kMaxPath];
  const Fault fault = path.find(name, sizeof name) ? judge_path(kind, name, bytes) : Fault();
  errno = kept;
  return fault;
}

Fault decide(Kind kind, const PathName& path, const PathName& other) {
  if (!is_watched(kind)) return {};
  const int kept = errno;
  char names[2 * kMaxPath];  // one text of both, so that a rule counts the call once
  size_t used = 0;
  if (path.find(names, kMaxPath)) used = std::strlen(names);
  names[used++] = '\n';
  if (!other.find(names + used, kMaxPath)) names[used] = '\0';
  const Fault fault = judge_path(kind, names, 0);
  errno = kept;
  return fault;
}

}  // namespace weft::faults
