// Tickets and gates: how a launching thread puts a gate in front of a unit of work.
#pragma once

#include "shim/gate/opener.h"

#include "shim/evidence/streams.h"

namespace heddle::shim {

// The page's device address. The first call registers the page with CUDA, in the device's primary
// context or, if there is none, in the calling thread's context. 0: the page cannot be registered,
// or another thread is doing so.
CUdeviceptr page_at(GateBook& book, int device);

struct GateTicket {
  CUdeviceptr word = 0;  // the stream waits until it has reached `number`; 0: there is no gate
  uint32_t number = 0;
};

// The ticket of the next unit on the device, in whatever stream.
uint32_t draw_ticket(GateBook& book, int device);
// The same with the address of its gate. Without a registered page there is neither.
GateTicket take_ticket(GateBook& book, int device);

// Puts a gate behind everything that the stream has, and returns its ticket. In front of the gate
// the GPU writes that the stream's unit before is over. It does the same for units in streams that
// the legacy stream's rules order before this one. 0: there is no gate, and the thread must wait.
// So it is in a stream of another context than the page is registered in, unless that is a primary
// context.
uint32_t put_gate(GateBook& book, StreamSlot& stream, StreamRef ref);

// The ticket of the newest gate in the stream; 0: it has no gate of that book.
uint32_t newest_gate(const GateBook& book, const StreamSlot& stream);

// Whether that gate is the stream's newest, and its unit has not ended.
bool takes_launches(const GateBook& book, const StreamSlot& stream, uint32_t ticket);

// No launch follows in the unit of `gate` (StreamSlot::gate): has the GPU write its ticket into
// GatePage::done when the unit is over. Does nothing if the stream has a newer gate.
void put_last_word(StreamSlot& stream, StreamRef ref, uint64_t gate);

// The context ended, and with it its registrations: the next ticket registers the page again.
void forget_registrations(CUcontext context);

}  // namespace heddle::shim
