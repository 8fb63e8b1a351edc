// comm/gloo/message.h: a message's header, and what a group keeps for each of its members.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/gloo/link.h"

namespace weft {

// The wire format; ranks run the same program on the same kind of machine.
struct GlooHeader {
  CommCall call;
  int64_t bytes;
  char data[GlooLink::kLittleBytes];
  static const int64_t kHeadBytes;
};
inline constexpr int64_t GlooHeader::kHeadBytes = offsetof(GlooHeader, data);

// A message that arrived before its recv.
struct GlooMessage {
  CommCall call;
  std::vector<char> data;
};

struct GlooLink::Peer {
  // Shared pointers, because they may point to types that only Gloo's headers define.
  struct Out {
    std::shared_ptr<Buffer> buffer;
    GlooHeader header;
    bool is_under_way = false;
  };
  std::array<Out, 4> out;  // this many headers may wait for a reader
  uint32_t headers_out = 0, messages_out = 0, messages_in = 0;
  std::shared_ptr<Buffer> in;
  GlooHeader incoming;  // written by Gloo's thread
  GlooHeader header;    // the last one read
  CommCall latest{};    // its call; number 0: none yet
  bool has_come = false;
  std::string why_gone;
  std::deque<GlooMessage> mail;

  void keep_message() {
    mail.push_back({header.call, std::vector<char>(header.data, header.data + header.bytes)});
  }
};

}  // namespace weft
