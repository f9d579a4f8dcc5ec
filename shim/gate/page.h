// Tickets: where a launching thread puts the gate in front of a unit of work.
#pragma once

#include "shim/gate/opener.h"

#include "shim/evidence/streams.h"

namespace heddle::shim {

// Where the page is on the GPU. The first call registers it with CUDA, in the device's primary
// context or, where there is none, the calling thread's. 0: it cannot be had, or not now.
CUdeviceptr page_at(GateBook& book, int device);

struct GateTicket {
  CUdeviceptr word = 0;  // the stream waits until it has reached `number`; 0: there is no gate
  uint32_t number = 0;
};

// Of the next unit on the device, in whatever stream.
uint32_t draw_ticket(GateBook& book, int device);
// The same for a gate; without the page on the GPU there is none.
GateTicket take_ticket(GateBook& book, int device);

// Puts a gate behind all that the stream has. When that is done the GPU says so of the unit that
// had the stream's gate before, and of units in streams that it is ordered behind without a word of
// the program's. The gate's ticket; 0: there is none, and the thread waits. So it does in a stream
// of another context than the page is registered in, unless that is a primary one.
uint32_t put_gate(GateBook& book, StreamSlot& stream, StreamRef ref);

// The ticket of the newest gate in the stream; 0: it has none of that book.
uint32_t newest_gate(const GateBook& book, const StreamSlot& stream);

// That gate is the stream's newest, and its unit has not ended.
bool takes_launches(const GateBook& book, const StreamSlot& stream, uint32_t ticket);

// No launch follows in the unit of `gate` (StreamSlot::gate): has the GPU say when that is over.
// Nothing happens if another gate is behind it.
void put_last_word(StreamSlot& stream, StreamRef ref, uint64_t gate);

// The context ended, and with it what was registered there: the next ticket registers again.
void forget_registrations(CUcontext context);

}  // namespace heddle::shim
