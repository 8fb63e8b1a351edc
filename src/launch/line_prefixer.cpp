// launch/line_prefixer.cpp: pipe to terminal.
#include "launch/line_prefixer.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace weft {
namespace {

constexpr size_t kLongestLine = 64 << 10;  // a longer one is split into several

void write_whole(int to, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t put = ::write(to, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;  // nobody reads any more: the job continues
    done += static_cast<size_t>(put);
  }
}

}  // namespace

LinePrefixer::LinePrefixer(int from, int to, std::string prefix)
    : LinePrefixer(from, [to, prefix = std::move(prefix)](const std::string& line) {
        write_whole(to, prefix + line + "\n");
      }) {}

LinePrefixer::~LinePrefixer() {
  if (from_ >= 0) ::close(from_);
}

void LinePrefixer::pump() {
  char buffer[16 << 10];
  while (from_ >= 0) {
    const ssize_t got = ::read(from_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      ::close(from_);
      from_ = -1;
      return;
    }
    pending_.append(buffer, static_cast<size_t>(got));
    take_lines();
  }
}

void LinePrefixer::finish() {
  pump();
  if (!pending_.empty()) write_line(pending_);
  pending_.clear();
}

void LinePrefixer::take_lines() {
  size_t start = 0;
  for (;;) {
    const size_t end = pending_.find('\n', start);
    if (end != std::string::npos) {
      write_line(pending_.substr(start, end - start));
      start = end + 1;
    } else if (pending_.size() - start >= kLongestLine) {
      write_line(pending_.substr(start, kLongestLine));
      start += kLongestLine;
    } else {
      break;
    }
  }
  pending_.erase(0, start);
}

void LinePrefixer::write_line(const std::string& line) {
  if (!line.empty()) last_line_ = line;
  sink_(line);
}

}  // namespace weft
