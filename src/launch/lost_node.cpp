// launch/lost_node.cpp: a node is reported as lost by whoever has placed it.
#include "base/error.h"
#include "base/log.h"
#include "launch/agent.h"
#include "launch/node_messages.h"

namespace weft {

int report_lost_node(const AgentOptions& options, const std::string& host, int64_t pid) {
  Channel channel =
      Channel::connect(parse_endpoint(options.join), Secret::from_file(options.secret_file),
                       Identity{kSupervisorService}, node_message_bounds(), options.join_ms);
  channel.send(static_cast<uint8_t>(NodeMessage::kDrop), Drop{host, pid}.write(), options.join_ms);
  const Frame answer = channel.receive(options.join_ms);
  if (static_cast<NodeMessage>(answer.kind) != NodeMessage::kLeave)
    throw PeerError(fmt::format("{}: an unknown answer", channel.peer()));
  const Verdict verdict = Verdict::read(answer.payload);
  if (verdict.exit_code == 0)
    log_info("{}", verdict.words);
  else
    log_error("{}", verdict.words);
  return verdict.exit_code;
}

}  // namespace weft
