#include "worker/all_reduce/peer_messages.h"

#include <utility>

namespace pushpull {

const wire::PeerSender* peer_sender(const wire::Header& header) {
  switch (header.body_case()) {
    case wire::Header::kPeerChunk:
      return &header.peer_chunk().sender();
    case wire::Header::kPeerText:
      return &header.peer_text().sender();
    case wire::Header::kPeerQuestion:
      return &header.peer_question().sender();
    case wire::Header::kPeerAnswer:
      return &header.peer_answer().sender();
    default:
      return nullptr;
  }
}

Message peer_chunk(const wire::PeerSender& sender, int64_t operation, int stage, int index,
                   Payload payload) {
  Message message;
  wire::PeerChunk* chunk = message.header.mutable_peer_chunk();
  *chunk->mutable_sender() = sender;
  chunk->set_operation(operation);
  chunk->set_stage(stage);
  chunk->set_index(index);
  message.payloads.push_back(std::move(payload));
  return message;
}

Message peer_text(const wire::PeerSender& sender, int64_t operation, std::string text) {
  Message message;
  wire::PeerText* out = message.header.mutable_peer_text();
  *out->mutable_sender() = sender;
  out->set_operation(operation);
  out->set_text(std::move(text));
  return message;
}

Message peer_question(const wire::PeerSender& sender) {
  Message message;
  *message.header.mutable_peer_question()->mutable_sender() = sender;
  return message;
}

Message peer_answer(const wire::PeerSender& sender, int64_t sent) {
  Message message;
  *message.header.mutable_peer_answer()->mutable_sender() = sender;
  message.header.mutable_peer_answer()->set_sent(sent);
  return message;
}

}  // namespace pushpull
