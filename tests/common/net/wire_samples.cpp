#include "tests/common/net/wire_samples.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <memory>
#include <numeric>

namespace pushpull {

namespace {

using google::protobuf::FieldDescriptor;

void fill(google::protobuf::Message* message);

// Sets or appends a value that is not the default and differs from field to field.
void fill_field(google::protobuf::Message* message, const FieldDescriptor* field) {
  const auto* r = message->GetReflection();
  const bool many = field->is_repeated();
  const int value = 3 + 7 * field->number();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      many ? r->AddInt32(message, field, value) : r->SetInt32(message, field, value);
      break;
    case FieldDescriptor::CPPTYPE_INT64:
      many ? r->AddInt64(message, field, -value) : r->SetInt64(message, field, -value);
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      many ? r->AddUInt64(message, field, ~0ULL) : r->SetUInt64(message, field, ~0ULL);
      break;
    case FieldDescriptor::CPPTYPE_FLOAT:
      many ? r->AddFloat(message, field, 0.1F) : r->SetFloat(message, field, 0.1F);
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      many ? r->AddDouble(message, field, 0.1) : r->SetDouble(message, field, 0.1);
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      r->SetBool(message, field, true);
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      r->SetEnumValue(message, field, 2);
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      many ? r->AddString(message, field, "text \n\xc3\xbc") : r->SetString(message, field, "text");
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      fill(many ? r->AddMessage(message, field) : r->MutableMessage(message, field));
      break;
    default:
      break;
  }
}

void fill(google::protobuf::Message* message) {
  const auto* descriptor = message->GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    fill_field(message, field);
    if (field->is_repeated() && !field->is_map()) fill_field(message, field);
  }
}

}  // namespace

Payload payload_of_floats(size_t n, float first) {
  auto floats = std::make_shared<std::vector<float>>(n);
  std::iota(floats->begin(), floats->end(), first);
  const auto bytes = std::as_bytes(std::span<const float>(*floats));
  return {std::move(floats), bytes};
}

std::vector<Message> every_kind_of_message() {
  std::vector<Message> out;
  const auto* descriptor = wire::Header::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    Message message;
    if (descriptor->field(i)->containing_oneof() == nullptr) continue;  // not a body
    message.header.set_term_id(~uint64_t{7});
    fill_field(&message.header, descriptor->field(i));
    size_t payloads = 0;
    // one of two parts has a payload, the other lies in shared memory
    if (message.header.has_exchange()) {
      message.header.mutable_exchange()->mutable_push()->mutable_parts(0)->clear_segment();
      payloads = 1;
    }
    if (message.header.has_weights()) {
      message.header.mutable_weights()->mutable_slices(0)->clear_segment();
      payloads = 1;
    }
    if (message.header.has_load() || message.header.has_fetched() || message.header.has_store()) {
      payloads = 3;
    }
    if (message.header.has_peer_chunk() || message.header.has_own_weights()) payloads = 1;
    if (message.header.has_ping() || message.header.has_pong()) payloads = 1;
    for (size_t p = 0; p < payloads; ++p) {
      message.payloads.push_back(payload_of_floats(p == 0 ? 5 : 3000, 10.0F));
    }
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace pushpull
